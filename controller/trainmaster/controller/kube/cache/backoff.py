"""When the loops of this room wait: before they try again, and to let other tasks run.

Guarantees:
- R-27: `Backoff` waits 0.8 s doubling to 30 s, times 1 to 2, and starts over after two quiet minutes, or when told that
  all is well.
- P-35: `YieldBudget` says when work that finds no end should yield to other tasks: after so many steps, so many bytes
  or so much time, so that the event loop is held for a short while only, whatever the size of an object is, whatever
  handlers do with it, and however slow the machine is.
"""

from __future__ import annotations

import random as randomness
from typing import Final

from trainmaster.controller.kube.clock import Clock, Random

_FIRST: Final = 0.8
_CAP: Final = 30.0
_RESET: Final = 120.0
"""Seconds: the first wait and the longest one, before jitter, and the quiet time that starts it over (R-27)."""

STEPS_AT_MOST: Final = 100
BYTES_AT_MOST: Final = 2**18
"""A quarter of a mebibyte of JSON is decoded in one to two milliseconds."""

SECONDS_AT_MOST: Final = 0.005
"""Several reflectors that are busy at once, and workers, share the tenth of a second for which the loop may stall."""


class Backoff:
    """Exponential delays of one loop that talks to a server."""

    def __init__(self, *, clock: Clock, random: Random = randomness.random) -> None:
        self._clock = clock
        self._random = random
        self._delay = _FIRST
        self._last: float | None = None

    def reset(self) -> None:
        """Start over: what was tried has succeeded."""
        self._delay = _FIRST
        self._last = None

    def next_delay(self) -> float:
        """Return how long to wait before the next try."""
        now = self._clock.monotonic()
        if self._last is not None and now - self._last > _RESET:
            self._delay = _FIRST
        delay = self._delay
        self._delay = min(self._delay * 2.0, _CAP)
        wait = delay * (1.0 + self._random())
        # Quiet time is counted from the end of this wait; otherwise a wait near the reset time would reset itself.
        self._last = now + wait
        return wait


class YieldBudget:
    """Counts the work that was done since other tasks could run."""

    __slots__ = ("_bytes", "_seconds", "_steps")

    def __init__(self) -> None:
        self._steps = 0
        self._bytes = 0
        self._seconds = 0.0

    def spent(self, size: int, seconds: float = 0.0) -> bool:
        """Count one step on `size` bytes, which took so many seconds, if that is known; True if it is time to yield.

        Time is that of the step alone: between two steps, whoever counts them may have waited.
        """
        self._steps += 1
        self._bytes += size
        self._seconds += seconds
        if self._steps < STEPS_AT_MOST and self._bytes < BYTES_AT_MOST and self._seconds < SECONDS_AT_MOST:
            return False
        self._steps = self._bytes = 0
        self._seconds = 0.0
        return True
