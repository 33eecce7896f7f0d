"""NetworkPolicies: accepted and shown; the pods of one host share its network, so nothing enforces them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TypeAlias

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.validation.fields import forbidden, one_of, port, required
from trainmaster.devcluster.apiserver.registry.labels import label_selector
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_DIRECTIONS = {"ingress": "from", "egress": "to"}
_PROTOCOLS = ["SCTP", "TCP", "UDP"]


class NetworkPolicyStrategy(Strategy):
    """NetworkPolicies."""

    has_generation = True
    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in the types, and the protocols of ports."""
        spec = obj.setdefault("spec", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for direction in _DIRECTIONS:
            for rule in spec.get(direction) or ():
                for each in rule.get("ports") or ():
                    each["protocol"] = each.get("protocol") or "TCP"

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check selectors, ports and peers."""
        return list(_validate(obj["spec"]))


def _validate(spec: JsonObject) -> Iterator[FieldError]:
    yield from label_selector("spec.podSelector", spec.get("podSelector"))
    for direction, peers in _DIRECTIONS.items():
        for index, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{index}]"
            for position, each in enumerate(rule.get("ports") or ()):
                yield from _validate_port(f"{path}.ports[{position}]", each)
            for position, peer in enumerate(rule.get(peers) or ()):
                yield from _validate_peer(f"{path}.{peers}[{position}]", peer)
    allowed = ["Egress", "Ingress"]
    if len(spec["policyTypes"]) > len(allowed):
        yield FieldError(
            "spec.policyTypes", "Invalid", spec["policyTypes"], "may not specify more than two policyTypes"
        )
        return
    for index, each in enumerate(spec["policyTypes"]):
        yield from one_of(f"spec.policyTypes[{index}]", each, allowed)


def _validate_port(path: str, given: JsonObject) -> Iterator[FieldError]:
    yield from one_of(f"{path}.protocol", given["protocol"], _PROTOCOLS)
    number, end = given.get("port"), given.get("endPort")
    if number is not None:
        yield from port(f"{path}.port", number)
    if end is None:
        return
    if number is None:
        yield required(f"{path}.endPort", "may not be specified when `port` is not specified")
    elif isinstance(number, str):
        yield FieldError(f"{path}.endPort", "Invalid", end, "may not be specified when `port` is non-numeric")
    elif end < number:
        yield FieldError(f"{path}.endPort", "Invalid", end, "must be greater than or equal to `port`")


def _validate_peer(path: str, peer: JsonObject) -> Iterator[FieldError]:
    if not peer:
        yield required(path, "must specify a peer")
        return
    for field in ("podSelector", "namespaceSelector"):
        yield from label_selector(f"{path}.{field}", peer.get(field))
    block = peer.get("ipBlock")
    if block is None:
        return
    if len(peer) > 1:
        yield forbidden(path, "may not specify both ipBlock and another peer")
    whole = _network(block.get("cidr") or "")
    if whole is None:
        detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        yield FieldError(f"{path}.ipBlock.cidr", "Invalid", block.get("cidr") or "", detail)
        return
    for index, text in enumerate(block.get("except") or ()):
        part = _network(text)
        if part is None or part == whole or not _is_inside(part, whole):
            detail = "must be a strict subset of `cidr`"
            yield FieldError(f"{path}.ipBlock.except[{index}]", "Invalid", text, detail)


def _is_inside(part: _Network, whole: _Network) -> bool:
    if part.version == 4 and whole.version == 4:
        return part.subnet_of(whole)
    return part.version == 6 and whole.version == 6 and part.subnet_of(whole)


def _network(text: str) -> _Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "networking.k8s.io",
        "NetworkPolicy",
        "networkpolicies",
        strategy=NetworkPolicyStrategy(),
        short_names=("netpol",),
        columns=printers.NETWORK_POLICIES,
    )
