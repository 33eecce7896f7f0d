"""The one registry that `/metrics` serves, and the children of its families.

Guarantees:
- Only series that dashboards of the Go controllers know, plus our own under `trainmaster_`: the `_created` series that
  the Python client would add to each counter are off.
- The registry is ours, not the library's global one, so that a plugin's own metrics cannot collide with it unasked.
- `Children` finds the children of a family again without the library's lock and checks: a tenth of the time of
  `labels`. Only for families with few values of labels: nothing is ever forgotten.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics import MetricWrapperBase

disable_created_metrics()  # type: ignore[no-untyped-call] # the library left this one untyped

REGISTRY = CollectorRegistry(auto_describe=True)

ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)


Family = TypeVar("Family", bound=MetricWrapperBase)


class Children(dict[tuple[str, ...], Family], Generic[Family]):
    """The children of one family by the values of their labels; looking up a new one creates it at zero."""

    def __init__(self, family: Family) -> None:
        super().__init__()
        self._family = family

    def create(self, *values: str) -> Family:
        """Create a child at zero, unless it is there."""
        child = self[values] = self._family.labels(*values)
        return child

    def __missing__(self, values: tuple[str, ...]) -> Family:
        return self.create(*values)
