"""The one registry that `/metrics` serves.

Guarantees:
- Only series that dashboards of the Go controllers know, plus our own under `trainmaster_`: the `_created` series that
  the Python client would add to each counter are off.
- The registry is ours, not the library's global one, so that a plugin's own metrics cannot collide with it unasked.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

disable_created_metrics()  # type: ignore[no-untyped-call] # the library left this one untyped

REGISTRY = CollectorRegistry(auto_describe=True)

ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)
