"""Services: the defaults of a cluster with one address family, their usual mistakes, and what they are given.

What no two Services may share, cluster addresses and node ports, is given out from fixed ranges. Nothing is reached
under it; it is there for clients that read it, and for the refusals of a real server.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind, field_labels
from trainmaster.devcluster.apiserver.registry.fields import address as valid_address
from trainmaster.devcluster.apiserver.registry.fields import invalid, one_of, parse_address, port_number, required
from trainmaster.devcluster.apiserver.registry.fields import port as valid_port
from trainmaster.devcluster.apiserver.registry.labels import labels
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_label, dns_subdomain

_HEADLESS = "None"
_EXTERNAL_NAME, _LOAD_BALANCER, _NODE_PORT, _CLUSTER_IP = "ExternalName", "LoadBalancer", "NodePort", "ClusterIP"
_TYPES = [_CLUSTER_IP, _EXTERNAL_NAME, _LOAD_BALANCER, _NODE_PORT]
_PROTOCOLS = ["SCTP", "TCP", "UDP"]
_AFFINITY_SECONDS = 10_800
_NETWORK = ipaddress.ip_network("10.0.0.0/16")
_NODE_PORTS = range(30_000, 32_768)
_OF_ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy")


class ServiceStrategy(Strategy):
    """Services."""

    return_deleted_object = True
    required_by_schema = False

    def validate_name(self, name: str) -> list[str]:
        """Check a name by the rule of this kind."""
        return dns_label(name)

    def default(self, obj: JsonObject) -> None:
        """Fill in type, affinity, ports and policies."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", _CLUSTER_IP)
        spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
        if spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        elif spec["sessionAffinity"] == "ClientIP":
            client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            client.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
        for port in spec.get("ports") or ():
            port["protocol"] = port.get("protocol") or "TCP"
            port["targetPort"] = port.get("targetPort") or port.get("port", 0)
        if spec["type"] != _EXTERNAL_NAME:
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if _is_externally_accessible(spec):
            spec["externalTrafficPolicy"] = spec.get("externalTrafficPolicy") or "Cluster"
        if spec["type"] == _LOAD_BALANCER:
            spec.setdefault("allocateLoadBalancerNodePorts", True)

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start without a load balancer."""
        obj["status"] = {"loadBalancer": {}}
        _complete_addresses(obj["spec"])

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep what was given out when it is left out, and drop what the new type does not have."""
        restore(obj, old, "status")
        spec, before = obj["spec"], old["spec"]
        if spec["type"] == _EXTERNAL_NAME:
            _drop_unchanged(spec, before, _OF_ADDRESSES)
        elif before["type"] != _EXTERNAL_NAME:
            for field in ("clusterIP", "ipFamilies", "ipFamilyPolicy"):
                if not spec.get(field) and before.get(field):
                    spec[field] = before[field]
        _complete_addresses(spec)
        if not _has_node_ports(spec):
            _drop_node_ports(spec, before)
        elif _has_node_ports(before):
            _keep_node_ports(spec, before)
        if spec["type"] != _LOAD_BALANCER:
            _drop_unchanged(spec, before, ("allocateLoadBalancerNodePorts", "loadBalancerClass"))
        if not _is_externally_accessible(spec):
            _drop_unchanged(spec, before, ("externalTrafficPolicy",))

    def allocate(
        self, obj: JsonObject, old: JsonObject | None, others: Callable[[], Iterable[JsonObject]], *, dry_run: bool
    ) -> None:
        """Give out addresses and node ports; a dry run checks neither addresses nor ranges, as a real server."""
        spec = obj["spec"]
        if spec["type"] == _EXTERNAL_NAME or (_is_headless(spec) and not _has_node_ports(spec)):
            return
        specs = [other["spec"] for other in others() if other["metadata"]["uid"] != obj["metadata"]["uid"]]
        before = old["spec"] if old is not None else {}
        problems = list(_allocate_address(obj, before, specs, dry_run=dry_run))
        if _has_node_ports(spec):
            problems += _allocate_node_ports(spec, before, specs, dry_run=dry_run)
        if problems:
            raise errors.invalid("", "Service", obj["metadata"]["name"], problems)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check type, ports, address and selector."""
        return list(_validate(obj["spec"]))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse to move a service to another address."""
        spec, before = obj["spec"], old["spec"]
        if _EXTERNAL_NAME in (spec["type"], before["type"]) or spec.get("clusterIP") == before.get("clusterIP"):
            return []
        return [FieldError("spec.clusterIPs[0]", "Invalid", spec.get("clusterIPs"), "may not change once set")]


def _is_headless(spec: JsonObject) -> bool:
    """Return whether a service has no address of its own, only those of its pods."""
    return bool(spec.get("clusterIP") == _HEADLESS)


def _is_externally_accessible(spec: JsonObject) -> bool:
    return spec["type"] in (_LOAD_BALANCER, _NODE_PORT) or (
        spec["type"] == _CLUSTER_IP and bool(spec.get("externalIPs"))
    )


def _complete_addresses(spec: JsonObject) -> None:
    """List the address, and fill in the families of addresses as a cluster with IPv4 only does."""
    if address := spec.get("clusterIP"):
        spec["clusterIPs"] = [address]
    else:
        spec.pop("clusterIP", None)
    if spec["type"] == _EXTERNAL_NAME:
        return
    # Somebody else lists the endpoints of a headless service without selector, which may have any family.
    of_others = _is_headless(spec) and not spec.get("selector")
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if of_others else "SingleStack")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if of_others else ["IPv4"])


def _drop_unchanged(spec: JsonObject, before: JsonObject, fields: Iterable[str]) -> None:
    """Drop fields that the client left as they were under the old type."""
    for field in fields:
        if field in spec and spec[field] == before.get(field):
            del spec[field]


def _has_node_ports(spec: JsonObject) -> bool:
    return spec["type"] == _NODE_PORT or (
        spec["type"] == _LOAD_BALANCER and spec.get("allocateLoadBalancerNodePorts") is not False
    )


def _node_ports(spec: JsonObject) -> list[int]:
    return [port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")]


def _drop_node_ports(spec: JsonObject, before: JsonObject) -> None:
    if _has_node_ports(before) and _node_ports(spec) == _node_ports(before):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)


def _keep_node_ports(spec: JsonObject, before: JsonObject) -> None:
    known = {(port["protocol"], port.get("port")): port.get("nodePort") for port in before.get("ports") or ()}
    used = set(_node_ports(spec))
    for port in spec.get("ports") or ():
        kept = known.get((port["protocol"], port.get("port")))
        if not port.get("nodePort") and kept and kept not in used:
            port["nodePort"] = kept


def _allocate_address(
    service: JsonObject, before: JsonObject, others: list[JsonObject], *, dry_run: bool
) -> Iterator[FieldError]:
    spec = service["spec"]
    address = spec.get("clusterIP")
    if address == _HEADLESS:
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
    own = set(_node_ports(before))
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
    for port in ports:
        if not port.get("nodePort"):
            number = next(free, None)
            if number is None:
                yield FieldError("spec.ports", "Invalid", errors.OMITTED, "no node port is free: delete services")
                return
            port["nodePort"] = number


def _validate(spec: JsonObject) -> Iterator[FieldError]:
    yield from one_of("spec.type", spec["type"], _TYPES)
    if not spec.get("ports") and not _is_headless(spec) and spec["type"] != _EXTERNAL_NAME:
        yield required("spec.ports")
    if spec["type"] in (_LOAD_BALANCER, _NODE_PORT) and _is_headless(spec):
        detail = f"may not be set to 'None' for {spec['type']} services"
        yield FieldError("spec.clusterIPs[0]", "Invalid", _HEADLESS, detail)
    if spec["type"] == _EXTERNAL_NAME:
        yield from _validate_external_name(spec)
    elif (address := spec.get("clusterIP")) and address != _HEADLESS:
        yield from valid_address("spec.clusterIPs[0]", address)
    yield from _validate_ports(spec)
    yield from labels("spec.selector", spec.get("selector") or {})


def _validate_external_name(spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("clusterIP"):
        yield FieldError("spec.clusterIPs", "Forbidden", detail="may not be set for ExternalName services")
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    else:
        yield from invalid("spec.externalName", name, dns_subdomain(name))


def _validate_ports(spec: JsonObject) -> Iterator[FieldError]:
    ports = spec.get("ports") or []
    names: set[str] = set()
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        path, name, number = f"spec.ports[{index}]", port.get("name", ""), port.get("port", 0)
        if name:
            yield from invalid(f"{path}.name", name, dns_label(name))
            if name in names:
                yield FieldError(f"{path}.name", "Duplicate", name)
            names.add(name)
        elif len(ports) > 1:
            yield required(f"{path}.name")
        yield from port_number(f"{path}.port", number)
        yield from one_of(f"{path}.protocol", port["protocol"], _PROTOCOLS)
        yield from valid_port(f"{path}.targetPort", port["targetPort"])
        if port.get("nodePort") and spec["type"] == _CLUSTER_IP:
            yield FieldError(f"{path}.nodePort", "Forbidden", detail="may not be used when `type` is 'ClusterIP'")
        if (port["protocol"], number) in seen:
            # The server shows its own structure with what makes two ports equal.
            shown = {"Name": "", "Protocol": port["protocol"], "AppProtocol": None, "Port": number}
            yield FieldError(path, "Duplicate", {**shown, "TargetPort": 0, "NodePort": 0})
        seen.add((port["protocol"], number))


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "Service",
        "services",
        strategy=ServiceStrategy(),
        short_names=("svc",),
        categories=("all",),
        subresources=("status", "proxy"),
        columns=printers.SERVICES,
        field_labels=field_labels("spec.clusterIP", "spec.type"),
    )
