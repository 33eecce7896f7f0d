"""The metrics of the caches: reflectors and informers. client-go registers none, so the names are our own.

Guarantees:
- K-7: constructing `InformerMetrics` creates every series of that informer at zero.
- S-10: `trainmaster_informer_undelivered` is the part of a snapshot that event handlers have not been called with yet.
- What a cluster need not have shows as nothing that an alert would be for: it is neither waited for, nor old, nor
  counted as failing.
- `trainmaster_informer_age_seconds` tells of a cache that stands still: servers send bookmarks about once a minute.
- S-20: lists, watches, restarts of watches by cause, events, and the size of each cache are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Counter, Gauge

SnapshotMethod: TypeAlias = Literal["streaming", "list"]
"""How a snapshot was taken: by a streaming list, or by list requests."""

RestartCause: TypeAlias = Literal[
    "ended", "short", "broken", "silent", "refused", "expired", "busy", "malformed", "denied", "failed"
]
"""Why a watch had to be opened again: the server ended it as asked; it ended or broke at once, without progress (in
addition to how it ended); its connection broke; it carried nothing for too long; it could not be opened; its version
expired; the server asked to slow down; it carried something else than events; we may not read the kind, or it is not
served; the server failed otherwise.
"""

OBJECTS = Gauge("trainmaster_informer_objects", "Objects in the store", ("resource",), registry=REGISTRY)
BYTES = Gauge("trainmaster_informer_bytes", "Size of the objects in the store", ("resource",), registry=REGISTRY)
SYNCED = Gauge(
    "trainmaster_informer_synced",
    "0 while the first snapshot is waited for, else 1; nobody waits for an optional kind that the server refuses",
    ("resource",), registry=REGISTRY,
)  # fmt: skip
UNDELIVERED = Gauge(
    "trainmaster_informer_undelivered", "Changes of a snapshot that handlers have not heard of yet", ("resource",),
    registry=REGISTRY,
)  # fmt: skip
UNREADABLE = Gauge(
    "trainmaster_informer_unreadable_objects", "Objects in the store of which only the metadata could be read",
    ("resource",), registry=REGISTRY,
)  # fmt: skip
RESOURCE_VERSION = Gauge(
    "trainmaster_informer_resource_version", "Newest resource version that the store reached", ("resource",),
    registry=REGISTRY,
)  # fmt: skip
AGE = Gauge(
    "trainmaster_informer_age_seconds",
    "Seconds since the store heard of the server last, by a list, an event or a bookmark; of several namespaces the "
    "most; 0 for a kind that the server does not serve, or that is optional and may not be read",
    ("resource",), registry=REGISTRY,
)  # fmt: skip
SNAPSHOTS = Counter(
    "trainmaster_informer_snapshots_total", "Snapshots taken", ("resource", "method"), registry=REGISTRY
)
WATCHES = Counter("trainmaster_informer_watches_total", "Watches opened", ("resource",), registry=REGISTRY)
RESTARTS = Counter(
    "trainmaster_informer_watch_restarts_total", "Watches that came to an end, by cause", ("resource", "cause"),
    registry=REGISTRY,
)  # fmt: skip
EVENTS = Counter("trainmaster_informer_events_total", "Watch events received", ("resource",), registry=REGISTRY)
FAILURES = Counter(
    "trainmaster_informer_failures_total",
    "Lists and watches that failed and were tried again; looks for a kind that is not served are none",
    ("resource",), registry=REGISTRY,
)  # fmt: skip


class InformerMetrics:
    """The series of one informer; informers call these methods and know no name."""

    def __init__(self, resource: str) -> None:
        self._objects = OBJECTS.labels(resource)
        self._bytes = BYTES.labels(resource)
        self._synced = SYNCED.labels(resource)
        self._undelivered = UNDELIVERED.labels(resource)
        self._unreadable = UNREADABLE.labels(resource)
        self._resource_version = RESOURCE_VERSION.labels(resource)
        self._age = AGE.labels(resource)
        methods: tuple[SnapshotMethod, ...] = get_args(SnapshotMethod)
        self._snapshots = {method: SNAPSHOTS.labels(resource, method) for method in methods}
        causes: tuple[RestartCause, ...] = get_args(RestartCause)
        self._restarts = {cause: RESTARTS.labels(resource, cause) for cause in causes}
        self._watches = WATCHES.labels(resource)
        self._events = EVENTS.labels(resource)
        self._failures = FAILURES.labels(resource)

    def measure(
        self,
        *,
        objects: Callable[[], float],
        size: Callable[[], float],
        resource_version: Callable[[], float],
        synced: Callable[[], float],
        age: Callable[[], float],
    ) -> None:
        """Read the state of the store from these at every scrape: cheaper than counting each event."""
        self._synced.set_function(synced)
        self._age.set_function(age)
        self._objects.set_function(objects)
        self._bytes.set_function(size)
        self._resource_version.set_function(resource_version)

    def undelivered(self, changes: int) -> None:
        """So many changes of a snapshot are yet to be delivered to event handlers."""
        self._undelivered.set(changes)

    def unreadable(self, objects: int) -> None:
        """Of so many objects only the metadata could be read."""
        self._unreadable.set(objects)

    def snapshot(self, method: SnapshotMethod) -> None:
        """A complete snapshot arrived."""
        self._snapshots[method].inc()

    def watching(self) -> None:
        """A watch was opened."""
        self._watches.inc()

    def restarted(self, cause: RestartCause) -> None:
        """A watch came to an end."""
        self._restarts[cause].inc()

    def event(self) -> None:
        """A watch event arrived."""
        self._events.inc()

    def failed(self) -> None:
        """A list or a watch failed."""
        self._failures.inc()
