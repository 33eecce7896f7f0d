"""Which of the things that somebody records become events, and which count up an earlier one.

Guarantees:
- F-6: of each object, a burst of `BURST` new events goes through, then one every `REFILL` seconds; the rest is dropped.
  Of events that differ in nothing but their note, all that come after `AGGREGATE_MAX_EVENTS` within
  `AGGREGATE_INTERVAL` are one event, with the first note of them: the API lets nobody change a note.
- F-7: the same event again within `FINISH_TIME` counts up the series of the first.
- Memory is bounded: each of the three memories holds `MAX_ENTRIES` entries, and forgets the oldest for a new one.

Pure: the time comes in by argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias, TypeVar

from cachetools import FIFOCache

from trainmaster.runtime.jsontree import JsonObject

BURST: Final = 25
REFILL: Final = 300.0
AGGREGATE_MAX_EVENTS: Final = 10
AGGREGATE_INTERVAL: Final = 600.0
FINISH_TIME: Final = 360.0
MAX_ENTRIES: Final = 4096

COMBINED: Final = "(combined from similar events): "

V = TypeVar("V")


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
    count: int = 0
    written: int = 0
    """The count that the server knows."""

    tried_at: float = 0.0
    """When the last write ended, well or not."""

    tries: int = 0
    """Tries of the present write that failed."""

    queued: bool = False


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(slots=True)
class _Aggregate:
    """Similar events of late."""

    notes: set[str]
    at: float


# What is stored again moves to the end; what is only read stays where it is.
_Memory: TypeAlias = FIFOCache[tuple[str, ...], V]


class EventCorrelator:
    """Remembers what was recorded of late."""

    def __init__(self) -> None:
        self._buckets: _Memory[_Bucket] = FIFOCache(MAX_ENTRIES)
        self._aggregates: _Memory[_Aggregate] = FIFOCache(MAX_ENTRIES)
        self._series: _Memory[Series] = FIFOCache(MAX_ENTRIES)

    def __len__(self) -> int:
        """Count the series."""
        return len(self._series)

    def __iter__(self) -> Iterator[Series]:
        return iter(list(self._series.values()))

    def correlate(
        self, event: EventKey, note: str, make: Callable[[str], JsonObject], *, now: datetime, moment: float
    ) -> Series | None:
        """Take in that something happened once more.

        Args:
            about: What it is event.
            note: What is to be said.
            make: Makes the event, if it is a new one, from the note that it gets.
            now: The wall-clock time.
            moment: The time as seconds that never go back.

        Returns:
            The series that it counts up, or None if its object has too many events.
        """
        note = self._combined(event, note, moment)
        # What is combined is one series, whatever the notes are.
        key = (*event, COMBINED if note.startswith(COMBINED) else note)
        series = self._series.get(key)
        if series is None or moment - series.last_seen > FINISH_TIME:
            if not self._admit(event, moment):
                return None
            series = Series(make(note), now, moment)
        series.count += 1
        series.last, series.last_seen = now, moment
        self._series[key] = series
        return series

    def drop_finished(self, moment: float) -> None:
        """Forget what has not happened for a while."""
        _drop(self._series, lambda series: moment - series.last_seen > FINISH_TIME)
        _drop(self._aggregates, lambda aggregate: moment - aggregate.at > AGGREGATE_INTERVAL)
        _drop(self._buckets, lambda bucket: bucket.tokens + (moment - bucket.at) / REFILL >= BURST)

    def _admit(self, event: EventKey, moment: float) -> bool:
        key = (event.uid, event.name)
        bucket = self._buckets.get(key) or _Bucket(BURST, moment)
        bucket.tokens = min(BURST, bucket.tokens + (moment - bucket.at) / REFILL)
        bucket.at = moment
        self._buckets[key] = bucket
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _combined(self, event: EventKey, note: str, moment: float) -> str:
        aggregate = self._aggregates.get(event)
        if aggregate is None or moment - aggregate.at > AGGREGATE_INTERVAL:
            aggregate = _Aggregate(set(), moment)
        aggregate.at = moment
        self._aggregates[event] = aggregate
        if note not in aggregate.notes and len(aggregate.notes) >= AGGREGATE_MAX_EVENTS:
            return f"{COMBINED}{note}"
        aggregate.notes.add(note)
        return note


def _drop(memory: _Memory[V], unwanted: Callable[[V], bool]) -> None:
    for key, entry in list(memory.items()):
        if unwanted(entry):
            del memory[key]
