"""EndpointSlices: where the pods of a service listen."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError, immutable, unsupported
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    address,
    one_of,
    port_name_problems,
    port_number,
    required,
    subdomain,
)
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_TYPES = ["FQDN", "IPv4", "IPv6"]
_PROTOCOLS = ["SCTP", "TCP", "UDP"]
_MOST_ENDPOINTS, _MOST_ADDRESSES = 1000, 100


class EndpointSliceStrategy(Strategy):
    """EndpointSlices; the type of their addresses is fixed."""

    has_generation = True
    required_by_schema = False

    def is_new_generation(self, obj: JsonObject, old: JsonObject) -> bool:
        """Return whether anything but the metadata changed."""
        return any(obj.get(field) != old.get(field) for field in ("endpoints", "ports", "addressType"))

    def default(self, obj: JsonObject) -> None:
        """Fill in what ports leave open."""
        obj["endpoints"] = obj.get("endpoints") or []
        obj["ports"] = obj.get("ports") or []
        for port in obj["ports"]:
            port.setdefault("name", "")
            port["protocol"] = port.get("protocol") or "TCP"
        for endpoint in obj["endpoints"]:
            endpoint.setdefault("conditions", {})

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check addresses and ports."""
        return list(_validate(obj))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another type of addresses."""
        kind = obj.get("addressType")
        return [] if kind == old.get("addressType") else [immutable("addressType", kind)]


def _validate(obj: JsonObject) -> Iterator[FieldError]:
    kind = obj.get("addressType")
    if not kind:
        yield required("addressType")
    elif kind not in _TYPES:
        yield unsupported("addressType", kind, _TYPES)
    if len(obj["endpoints"]) > _MOST_ENDPOINTS:
        detail = f"must have at most {_MOST_ENDPOINTS} items"
        yield FieldError("endpoints", "TooMany", len(obj["endpoints"]), detail)
    for index, endpoint in enumerate(obj["endpoints"]):
        path = f"endpoints[{index}].addresses"
        addresses = endpoint.get("addresses") or []
        if not addresses:
            yield required(path, "must contain at least 1 address")
        elif len(addresses) > _MOST_ADDRESSES:
            yield FieldError(path, "TooMany", len(addresses), f"must have at most {_MOST_ADDRESSES} items")
        for position, each in enumerate(addresses):
            check = subdomain if kind == "FQDN" else address
            yield from check(f"{path}[{position}]", each)
    yield from _validate_ports(obj["ports"])


def _validate_ports(ports: list[JsonObject]) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port["name"]
        if name:
            yield from (FieldError(f"{path}.name", "Invalid", name, text) for text in port_name_problems(name))
        if name in names:
            yield FieldError(f"{path}.name", "Duplicate", name)
        names.add(name)
        yield from one_of(f"{path}.protocol", port["protocol"], _PROTOCOLS)
        if (number := port.get("port")) is not None:
            yield from port_number(f"{path}.port", number)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "discovery.k8s.io",
        "EndpointSlice",
        "endpointslices",
        strategy=EndpointSliceStrategy(),
        columns=printers.ENDPOINT_SLICES,
    )
