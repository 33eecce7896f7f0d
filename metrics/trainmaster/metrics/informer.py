"""The families of informers. client-go defines hooks for them but registers nothing, so the names are our own (S-20).

Guarantee, K-7: constructing `InformerMetrics` creates every series of that informer at zero.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from prometheus_client import Counter, Gauge

from trainmaster.metrics.registry import REGISTRY

Snapshot: TypeAlias = Literal["streaming", "list"]
"""How a snapshot was taken: by a streaming list, or by list requests."""

OBJECTS = Gauge("trainmaster_informer_objects", "Objects in the store", ("resource",), registry=REGISTRY)
SYNCED = Gauge(
    "trainmaster_informer_synced", "1 once the first snapshot was delivered", ("resource",), registry=REGISTRY
)
RESOURCE_VERSION = Gauge(
    "trainmaster_informer_resource_version", "Newest resource version that the store reached", ("resource",),
    registry=REGISTRY,
)  # fmt: skip
SNAPSHOTS = Counter(
    "trainmaster_informer_snapshots_total", "Snapshots taken", ("resource", "method"), registry=REGISTRY
)
WATCHES = Counter("trainmaster_informer_watches_total", "Watches opened", ("resource",), registry=REGISTRY)
EVENTS = Counter("trainmaster_informer_events_total", "Watch events received", ("resource",), registry=REGISTRY)
FAILURES = Counter(
    "trainmaster_informer_failures_total", "Lists and watches that failed and were tried again", ("resource",),
    registry=REGISTRY,
)  # fmt: skip


class InformerMetrics:
    """The series of one informer; informers call these methods and know no name."""

    def __init__(self, resource: str) -> None:
        self._objects = OBJECTS.labels(resource)
        self._synced = SYNCED.labels(resource)
        self._resource_version = RESOURCE_VERSION.labels(resource)
        self._snapshots = {
            "streaming": SNAPSHOTS.labels(resource, "streaming"),
            "list": SNAPSHOTS.labels(resource, "list"),
        }
        self._watches = WATCHES.labels(resource)
        self._events = EVENTS.labels(resource)
        self._failures = FAILURES.labels(resource)

    def stored(self, *, objects: int, resource_version: int) -> None:
        """The store changed."""
        self._objects.set(objects)
        self._resource_version.set(resource_version)

    def synced(self) -> None:
        """The first snapshot was delivered."""
        self._synced.set(1)

    def snapshot(self, method: Snapshot) -> None:
        """A complete snapshot arrived."""
        self._snapshots[method].inc()

    def watching(self) -> None:
        """A watch was opened."""
        self._watches.inc()

    def event(self) -> None:
        """A watch event arrived."""
        self._events.inc()

    def failed(self) -> None:
        """A list or a watch failed."""
        self._failures.inc()
