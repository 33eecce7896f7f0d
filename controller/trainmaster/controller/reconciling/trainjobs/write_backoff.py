"""Contending: noticing that somebody keeps undoing what we write, and writing less often then.

Two controllers that want different things of one object, or an admission webhook that changes what we send, make
a reconciler that only compares and writes run as fast as the server answers. So writes are counted for each object.

Guarantees:
- `FREE_WRITES` writes of the same content go through at once; each further one waits twice as long as the one before,
  from a second to five minutes. A change of what we desire starts over.
- After `FREE_CHANGES` such changes in a row there is `CHANGE_WAIT` between two writes: a plugin that never wants the
  same twice does not run as fast as the server answers either.
- It ends by itself: when nothing had to be written for twice the last wait (at least `QUIET`), the object is forgotten.
- Nothing of this is needed for correctness; memory holds what was written in the last minutes, and contests.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.reconciling.trainjobs.drift import Path, describe, differences, holders
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject

FREE_WRITES: Final = 5
"""More than any honest sequence of events makes us repeat ourselves, few enough not to be felt by the server."""

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 300.0
QUIET: Final = 60.0

FREE_CHANGES: Final = 50
CHANGE_WAIT: Final = 2.0
"""Seconds; short, because the status of a large job that comes up changes as often, and for a good reason."""

_PLACES_TOLD: Final = 5


class Hold(NamedTuple):
    """A write has to wait because the object is contested."""

    seconds: float
    first: bool
    """Whether this contest is held up for the first time: the moment to tell somebody."""


@dataclass(slots=True)
class _Streak:
    """Writes of the same content to one object."""

    content: bytes
    writes: int
    last: float
    changes: int
    """Streaks of other contents that came right before this one, one after the other."""

    told: bool = False

    @property
    def wait(self) -> float:
        """Seconds from the last write to the next."""
        if self.writes < FREE_WRITES:
            return 0.0
        return min(FIRST_WAIT * 2.0 ** min(self.writes - FREE_WRITES, 16), LONGEST_WAIT)

    def is_over(self, now: float) -> bool:
        return now - self.last > max(2 * self.wait, QUIET)


class Contests:
    """What was written when, by object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._streaks: OrderedDict[tuple[str, str], _Streak] = OrderedDict()
        """The one written last is at the end."""

    def __len__(self) -> int:
        return len(self._streaks)

    def hold(self, key: str, what: str, desired: Any) -> Hold | None:
        """Tell whether writing `desired` has to wait.

        Args:
            key: The TrainJob.
            what: Which of its objects.
            desired: All that would be written.
        """
        streak = self._streaks.get((key, what))
        now = self._clock.monotonic()
        if streak is None or streak.is_over(now):
            return None
        if streak.content != _digest(desired):
            seconds = streak.last + CHANGE_WAIT - now
            return Hold(seconds, first=False) if streak.changes >= FREE_CHANGES and seconds > 0 else None
        seconds = streak.last + streak.wait - now
        if seconds <= 0:
            return None
        first, streak.told = not streak.told, True
        return Hold(seconds, first)

    def knows(self, key: str, what: str, desired: Any) -> bool:
        """Tell whether `desired` was written in the last minutes."""
        streak = self._streaks.get((key, what))
        return streak is not None and streak.content == _digest(desired)

    def wrote(self, key: str, what: str, desired: Any) -> None:
        """Note a write that the server accepted."""
        now, content = self._clock.monotonic(), _digest(desired)
        streak = self._streaks.get((key, what))
        if streak is None or streak.is_over(now):
            streak = self._streaks[key, what] = _Streak(content, 0, now, changes=0)
        elif streak.content != content:
            streak = self._streaks[key, what] = _Streak(content, 0, now, changes=streak.changes + 1)
        streak.writes += 1
        streak.last = now
        self._streaks.move_to_end((key, what))
        while self._streaks and next(iter(self._streaks.values())).is_over(now):
            self._streaks.popitem(last=False)


class Dispute(NamedTuple):
    """What a contest is about."""

    fields: list[str]
    managers: list[str]

    def __str__(self) -> str:
        if not self.fields:
            return "nothing at this moment"
        fields = ", ".join(self.fields[:_PLACES_TOLD]) + (", ..." if len(self.fields) > _PLACES_TOLD else "")
        others = [manager for manager in self.managers if manager != FIELD_MANAGER]
        if others:
            return f"{fields} (set by {', '.join(others)})"
        return f"{fields} (changed by an admission webhook, or by another controller that calls itself {FIELD_MANAGER})"


def dispute(live: JsonObject, desired: JsonObject, also: Iterable[Path] = ()) -> Dispute:
    """Work out which fields differ from what we want and who set them.

    Args:
        live: The object as the server has it, with its managedFields.
        desired: What we would write.
        also: Further places in dispute: what is there although we want it gone.
    """
    places = [*differences(live, desired), *also]
    managers = [manager for place in places for manager in holders(live, place)]
    return Dispute([describe(place) for place in places], list(dict.fromkeys(managers)))


def _digest(content: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
