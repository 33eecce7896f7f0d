"""Which of the things that somebody records become events, and which count up an earlier one.

Guarantees:
- F-6: of each object, a burst of `BURST` new events goes through, then one every `REFILL` seconds; the rest is dropped.
  Of events that differ in nothing but their note, all that come after `AGGREGATE_MAX_EVENTS` within
  `AGGREGATE_INTERVAL` are one event, with the first note of them: the API lets nobody change a note.
- F-7: the same event again within `FINISH_TIME` counts up the series of the first.
- Memory is bounded: each of the three memories holds `MAX_ENTRIES` entries, and forgets the oldest for a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from cachetools import FIFOCache, TTLCache

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.ratelimit import KeyedRateLimiter
from trainmaster.runtime.jsontree import JsonObject

BURST: Final = 25
REFILL: Final = 300.0
AGGREGATE_MAX_EVENTS: Final = 10
AGGREGATE_INTERVAL: Final = 600.0
FINISH_TIME: Final = 360.0
MAX_ENTRIES: Final = 4096

COMBINED: Final = "(combined from similar events): "


class EventKey(NamedTuple):
    """What an event is about, its note apart: events that are equal in this are similar."""

    uid: str
    name: str
    type: str
    reason: str
    action: str


@dataclass(slots=True, eq=False)
class Series:
    """One event and its repeats."""

    body: JsonObject
    last: datetime
    last_seen: float
    """When it was recorded last, by the wall clock and as seconds that never go back."""

    count: int = 0
    written: int = 0
    """The count that the server knows."""

    tried_at: float = 0.0
    """When the last write ended, well or not."""

    tries: int = 0
    """Tries of the present write that failed."""

    queued: bool = False


class EventCorrelator:
    """Remembers what was recorded of late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limits = KeyedRateLimiter[tuple[str, str]](qps=1 / REFILL, burst=BURST, maxsize=MAX_ENTRIES, clock=clock)
        self._notes: MutableMapping[EventKey, set[str]] = TTLCache(MAX_ENTRIES, AGGREGATE_INTERVAL, clock.monotonic)
        """The notes of similar events, until none has come for the interval."""

        self._series: MutableMapping[tuple[str, ...], Series] = FIFOCache(MAX_ENTRIES)

    def __len__(self) -> int:
        """Count the series."""
        return len(self._series)

    def __iter__(self) -> Iterator[Series]:
        return iter(list(self._series.values()))

    def correlate(self, event: EventKey, note: str, make: Callable[[str], JsonObject]) -> Series | None:
        """Take in that something happened once more.

        Args:
            make: Makes the event, if it is a new one, from the note that it gets.

        Returns:
            The series that it counts up, or None if its object has too many events.
        """
        now, moment = self._clock.now(), self._clock.monotonic()
        note = self._combined(event, note)
        # What is combined is one series, whatever the notes are.
        key = (*event, COMBINED if note.startswith(COMBINED) else note)
        series = self._series.get(key)
        if series is None or moment - series.last_seen > FINISH_TIME:
            if self._limits.try_accept((event.uid, event.name)) > 0:
                return None
            series = Series(make(note), now, moment)
        series.count += 1
        series.last, series.last_seen = now, moment
        self._series[key] = series
        return series

    def drop_finished(self) -> None:
        """Forget the series that have ended."""
        moment = self._clock.monotonic()
        for key, series in list(self._series.items()):
            if moment - series.last_seen > FINISH_TIME:
                del self._series[key]

    def _combined(self, event: EventKey, note: str) -> str:
        notes = self._notes.get(event) or set()
        self._notes[event] = notes  # also if it is the same: the interval begins anew
        if note not in notes and len(notes) >= AGGREGATE_MAX_EVENTS:
            return f"{COMBINED}{note}"
        notes.add(note)
        return note
