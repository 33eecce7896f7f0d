"""What no two Services may share: cluster addresses and node ports, given out from fixed ranges.

Nothing is reached under them; they are there for clients that read them, and for the refusals of a real server.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.service_validation import (
    HEADLESS,
    LOAD_BALANCER,
    NODE_PORT,
    is_headless,
    needs_health_check,
)
from trainmaster.devcluster.apiserver.registry.fields import parse_address
from trainmaster.runtime.jsontree import JsonObject

_NETWORK = ipaddress.ip_network("10.0.0.0/16")
_NODE_PORTS = range(30_000, 32_768)


def allocate(
    service: JsonObject, old: JsonObject | None, others: Callable[[], Iterable[JsonObject]], *, dry_run: bool
) -> None:
    """Fill in addresses and node ports, in place; 422 for those that are taken or out of range.

    In a dry run, addresses and ranges are not checked, as in a real server.
    """
    spec = service["spec"]
    with_ports = spec["type"] == NODE_PORT or (
        spec["type"] == LOAD_BALANCER and spec.get("allocateLoadBalancerNodePorts") is not False
    )
    if is_headless(spec) and not with_ports:
        return
    name = service["metadata"]["name"]
    specs = [other["spec"] for other in others() if other["metadata"]["uid"] != service["metadata"]["uid"]]
    before = old["spec"] if old is not None else {}
    problems = list(_allocate_address(service, before, specs, dry_run=dry_run))
    if with_ports:
        problems += _allocate_node_ports(spec, before, specs, dry_run=dry_run)
    if problems:
        raise errors.invalid("", "Service", name, problems)


def _allocate_address(
    service: JsonObject, before: JsonObject, others: list[JsonObject], *, dry_run: bool
) -> Iterator[FieldError]:
    spec = service["spec"]
    address = spec.get("clusterIP")
    if address == HEADLESS:
        return
    taken = {other.get("clusterIP") for other in others}
    if not address:
        # The address follows from the UID as far as it is free, so that it differs from cluster to cluster.
        start = int(service["metadata"]["uid"].replace("-", "")[:8], 16)
        size = _NETWORK.num_addresses - 2
        candidates = (str(_NETWORK[1 + (start + step) % size]) for step in range(size))
        free = next((candidate for candidate in candidates if candidate not in taken), None)
        if free is None:
            detail = "failed to allocate a serviceIP: range is full"
            yield FieldError("spec.clusterIPs", "Invalid", [], detail)
            return
        spec["clusterIP"], spec["clusterIPs"] = free, [free]
    elif address != before.get("clusterIP") and not dry_run:
        problem = "provided IP is already allocated" if address in taken else ""
        if (given := parse_address(address)) is None or given not in _NETWORK:
            problem = "the provided network does not match the current range"
        if problem:
            detail = f"failed to allocate IP {address}: {problem}"
            yield FieldError("spec.clusterIPs", "Invalid", spec["clusterIPs"], detail)


def _allocate_node_ports(
    spec: JsonObject, before: JsonObject, others: list[JsonObject], *, dry_run: bool
) -> Iterator[FieldError]:
    taken = set(chain.from_iterable(map(_node_ports, others)))
    own = set(_node_ports(before)) if before else set()
    ports = spec.get("ports") or []
    for index, port in enumerate(ports):
        number = port.get("nodePort")
        if not number or number in own:
            continue
        path = f"spec.ports[{index}].nodePort"
        if number in taken:
            yield FieldError(path, "Invalid", number, "provided port is already allocated")
        elif number not in _NODE_PORTS and not dry_run:
            limits = f"{_NODE_PORTS.start}-{_NODE_PORTS.stop - 1}"
            detail = f"provided port is not in the valid range. The range of valid ports is {limits}"
            yield FieldError(path, "Invalid", number, detail)
    taken |= own | set(_node_ports(spec))
    free = (number for number in _NODE_PORTS if number not in taken)
    wanting = [(port, "nodePort") for port in ports]
    if needs_health_check(spec):
        wanting.append((spec, "healthCheckNodePort"))
    for holder, field in wanting:
        if not holder.get(field):
            number = next(free, None)
            if number is None:
                yield FieldError("spec.ports", "Invalid", errors.OMITTED, "no node port is free: delete services")
                return
            holder[field] = number


def _node_ports(spec: JsonObject) -> Iterator[int]:
    for port in spec.get("ports") or ():
        if port.get("nodePort"):
            yield port["nodePort"]
    if spec.get("healthCheckNodePort"):
        yield spec["healthCheckNodePort"]
