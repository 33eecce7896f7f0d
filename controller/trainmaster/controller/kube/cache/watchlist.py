"""Reads a collection by a streaming list: the initial events of a watch, up to the bookmark that ends them.

Guarantees:
- R-3: initial events are gathered aside, and returned as one snapshot when their end has come.
- R-5: what came of a stream that broke off is thrown away.
- R-6: while the end of the initial events is awaited, every ten seconds without an event are logged.
- R-7: the versions of initial events mean no progress; that of the snapshot is that of its bookmark.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final, Self

from trainmaster.controller.kube.cache.backoff import YieldBudget
from trainmaster.controller.kube.cache.delta import Entry
from trainmaster.controller.kube.cache.listwatch import Collection, Snapshot, ToEntry, version_of_event
from trainmaster.controller.kube.cache.store import object_key
from trainmaster.controller.kube.clock import Clock, Timer
from trainmaster.controller.kube.rest.errors import StreamBroken
from trainmaster.controller.kube.rest.watch import WatchEvent

SILENCE: Final = 10.0
"""Seconds without an event after which a snapshot that is not complete is worth a warning."""

_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


async def collect_initial_events(
    events: AsyncIterator[WatchEvent],
    collection: Collection,
    to_entry: ToEntry,
    *,
    clock: Clock,
    warn: Callable[[float, int], None],
) -> Snapshot:
    """Gather the initial events of a watch up to the bookmark that ends them.

    Args:
        events: The events of the watch; what comes after that bookmark stays in it.
        collection: What is watched.
        to_entry: Makes of an object what is kept of it.
        clock: The time.
        warn: Called with the seconds in which nothing has come, and how many events came before.

    Raises:
        StreamBroken: The watch ended before.
        KubeError: The watch failed.
    """
    entries: dict[str, Entry] = {}
    budget = YieldBudget()
    with InitialEventsEndTicker(clock, warn) as ticker:
        async for event in events:
            ticker.count += 1
            if event.type == "BOOKMARK":
                metadata = event.object.get("metadata")
                annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
                if isinstance(annotations, dict) and annotations.get(_INITIAL_EVENTS_END) == "true":
                    return list(entries.values()), version_of_event(event, collection.resource)
                continue
            if not collection.accepts(event.object):
                continue
            if event.type == "DELETED":
                entries.pop(object_key(event.object), None)
            else:
                entry = to_entry(event.object)
                entries[entry[0]] = entry
            if budget.spent(event.size):
                await clock.sleep(0)
    raise StreamBroken(f"the streaming list of {collection.resource.name} ended before its snapshot was complete")


class InitialEventsEndTicker:
    """Reports each stretch of `SILENCE` seconds in which `count` did not change.

    Args:
        clock: The time.
        report: Called with the seconds in which nothing has come, and how many events came before.
    """

    def __init__(self, clock: Clock, report: Callable[[float, int], None]) -> None:
        self.count = 0
        self._clock = clock
        self._report = report
        self._seen = 0
        self._silent = 0.0
        self._timer: Timer | None = None

    def __enter__(self) -> Self:
        self._set_timer()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        # One timer that looks at a counter, because a timer for each event would cost more than the event.
        self._timer = self._clock.call_at(self._clock.monotonic() + SILENCE, self._tick)

    def _tick(self) -> None:
        if self.count == self._seen:
            self._silent += SILENCE
            self._report(self._silent, self.count)
        else:
            self._seen, self._silent = self.count, 0.0
        self._set_timer()
