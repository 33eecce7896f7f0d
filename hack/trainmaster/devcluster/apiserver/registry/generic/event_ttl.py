"""The time to live of events: they disappear an hour after they were last written, as they do from a real cluster.

There is no background task: whoever reads or writes events first has the old ones removed.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.times import Clock
from trainmaster.devcluster.apiserver.resources import EVENTS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey, Record, Store

EVENT_LIFETIME = timedelta(hours=1)


class EventTTL:
    """Remembers when events were written, and removes those that are too old."""

    def __init__(self, store: Store, clock: Clock, *, lifetime: timedelta = EVENT_LIFETIME) -> None:
        self._store = store
        self._clock = clock
        self._lifetime = lifetime
        # After a restart the time of the last write is not known; the newest time in the event itself is close.
        known = [
            (
                _written(record),
                ObjectKey(EVENTS, record.metadata["namespace"], record.metadata["name"]),
                record.revision,
            )
            for record in store.list(EVENTS)
        ]
        self._written: deque[tuple[datetime, ObjectKey, int]] = deque(sorted(known))
        store.subscribe(EVENTS, self._note)

    def sweep(self) -> None:
        """Remove the events whose time is over."""
        limit = self._clock() - self._lifetime
        while self._written and self._written[0][0] <= limit:
            _, key, revision = self._written[0]
            record = self._store.get(key)
            # An event that was written again since is listed a second time, further back.
            if record is not None and record.revision == revision:
                try:
                    self._store.delete(key)
                except StatusError:
                    return  # the disk is full: whoever reads events may go on, and the next one removes them
            self._written.popleft()

    def _note(self, event: Event) -> None:
        if event.type != "DELETED":
            self._written.append((self._clock(), event.key, event.revision))


def _written(record: Record) -> datetime:
    obj = record.object
    series = obj.get("series") or {}
    for text in (
        series.get("lastObservedTime"),
        obj.get("lastTimestamp"),
        obj.get("eventTime"),
        record.metadata["creationTimestamp"],
    ):
        if text:
            return datetime.fromisoformat(text)
    raise ValueError(f"event {record.metadata['name']} has no creationTimestamp")
