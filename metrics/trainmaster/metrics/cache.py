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
    """The series of one informer."""

    def __init__(self, resource: str) -> None:
        self.objects = OBJECTS.labels(resource)
        self.bytes = BYTES.labels(resource)
        self.synced = SYNCED.labels(resource)
        self.undelivered = UNDELIVERED.labels(resource)
        self.unreadable = UNREADABLE.labels(resource)
        self.resource_version = RESOURCE_VERSION.labels(resource)
        self.age = AGE.labels(resource)
        methods: tuple[SnapshotMethod, ...] = get_args(SnapshotMethod)
        self.snapshots = {method: SNAPSHOTS.labels(resource, method) for method in methods}
        causes: tuple[RestartCause, ...] = get_args(RestartCause)
        self.restarts = {cause: RESTARTS.labels(resource, cause) for cause in causes}
        self.watches = WATCHES.labels(resource)
        self.events = EVENTS.labels(resource)
        self.failures = FAILURES.labels(resource)
