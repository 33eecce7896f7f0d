"""Correlating: which of the things that somebody wants to record become events, and which count up an earlier one.

Guarantees:
- F-6: of each object, a burst of `BURST` new events goes through, then one every `REFILL` seconds; the rest is dropped.
  Of events that differ in nothing but their note, all that come after `SIMILAR` within `SIMILAR_WINDOW` are one event,
  with the first note of them: the API lets nobody change a note.
- F-7: the same event again within `QUIET` counts up the series of the first.
- Memory is bounded: each of the three memories holds `REMEMBERED` entries, and forgets the oldest for a new one.

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
SIMILAR: Final = 10
SIMILAR_WINDOW: Final = 600.0
QUIET: Final = 360.0
REMEMBERED: Final = 4096

COMBINED: Final = "(combined from similar events): "

V = TypeVar("V")


class About(NamedTuple):
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
class _Crowd:
    """Similar events of late."""

    notes: set[str]
    at: float


# What is stored again moves to the end; what is only read stays where it is.
_Memory: TypeAlias = FIFOCache[tuple[str, ...], V]


class Correlator:
    """Remembers what was recorded of late."""

    def __init__(self) -> None:
        self._buckets: _Memory[_Bucket] = FIFOCache(REMEMBERED)
        self._crowds: _Memory[_Crowd] = FIFOCache(REMEMBERED)
        self._series: _Memory[Series] = FIFOCache(REMEMBERED)

    def __len__(self) -> int:
        """Count the series."""
        return len(self._series)

    def __iter__(self) -> Iterator[Series]:
        return iter(list(self._series.values()))

    def note(
        self, about: About, note: str, make: Callable[[str], JsonObject], *, now: datetime, moment: float
    ) -> Series | None:
        """Take in that something happened once more.

        Args:
            about: What it is about.
            note: What is to be said.
            make: Makes the event, if it is a new one, from the note that it gets.
            now: The wall-clock time.
            moment: The time as seconds that never go back.

        Returns:
            The series that it counts up, or None if its object has too many events.
        """
        note = self._combined(about, note, moment)
        # What is combined is one series, whatever the notes are.
        key = (*about, COMBINED if note.startswith(COMBINED) else note)
        series = self._series.get(key)
        if series is None or moment - series.last_seen > QUIET:
            if not self._admit(about, moment):
                return None
            series = Series(make(note), now, moment)
        series.count += 1
        series.last, series.last_seen = now, moment
        self._series[key] = series
        return series

    def drop_quiet(self, moment: float) -> None:
        """Forget what has not happened for a while."""
        _drop(self._series, lambda series: moment - series.last_seen > QUIET)
        _drop(self._crowds, lambda crowd: moment - crowd.at > SIMILAR_WINDOW)
        _drop(self._buckets, lambda bucket: bucket.tokens + (moment - bucket.at) / REFILL >= BURST)

    def _admit(self, about: About, moment: float) -> bool:
        key = (about.uid, about.name)
        bucket = self._buckets.get(key) or _Bucket(BURST, moment)
        bucket.tokens = min(BURST, bucket.tokens + (moment - bucket.at) / REFILL)
        bucket.at = moment
        self._buckets[key] = bucket
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _combined(self, about: About, note: str, moment: float) -> str:
        crowd = self._crowds.get(about)
        if crowd is None or moment - crowd.at > SIMILAR_WINDOW:
            crowd = _Crowd(set(), moment)
        crowd.at = moment
        self._crowds[about] = crowd
        if note not in crowd.notes and len(crowd.notes) >= SIMILAR:
            return f"{COMBINED}{note}"
        crowd.notes.add(note)
        return note


def _drop(memory: _Memory[V], unwanted: Callable[[V], bool]) -> None:
    for key, entry in list(memory.items()):
        if unwanted(entry):
            del memory[key]
