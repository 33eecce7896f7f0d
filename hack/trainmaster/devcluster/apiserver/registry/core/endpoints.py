"""Endpoints: where the pods of a service listen, in the form that came before EndpointSlices."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.validation.fields import address, one_of, port_number, required
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_PROTOCOLS = ["SCTP", "TCP", "UDP"]


class EndpointsStrategy(Strategy):
    """Endpoints."""

    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in what ports leave open."""
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                port["protocol"] = port.get("protocol") or "TCP"

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check addresses and ports."""
        return [
            problem
            for index, subset in enumerate(obj.get("subsets") or ())
            for problem in _validate_subset(f"subsets[{index}]", subset)
        ]


def _validate_subset(path: str, subset: JsonObject) -> Iterator[FieldError]:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield required(path, "must specify `addresses` or `notReadyAddresses`")
    for field in ("addresses", "notReadyAddresses"):
        for index, each in enumerate(subset.get(field) or ()):
            yield from address(f"{path}.{field}[{index}].ip", each.get("ip", ""))
    for index, port in enumerate(subset.get("ports") or ()):
        yield from port_number(f"{path}.ports[{index}].port", port.get("port", 0))
        yield from one_of(f"{path}.ports[{index}].protocol", port["protocol"], _PROTOCOLS)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "Endpoints",
        "endpoints",
        strategy=EndpointsStrategy(),
        short_names=("ep",),
        columns=printers.ENDPOINTS,
    )
