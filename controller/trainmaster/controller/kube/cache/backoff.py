"""How long to wait before the next try.

Guarantees:
- W-10: `KeyedBackoff` doubles per key from 5 ms to 1000 s, without overflow; `forget` starts that key over.
- W-14: there is no bucket shared by all keys: after a mass failure each key recovers at its own pace.
- W-15: the jitter only ever shortens a wait: keys that failed together drift apart, also at the cap, and it holds.
- R-27: `Backoff` waits 0.8 s doubling to 30 s, times 1 to 2, and starts over after two quiet minutes, or when told that
  all is well.
- P-35: `Turns` says when work that finds no end should let other tasks run: after so many steps or so many bytes, so
  that a turn is short whatever the size of an object.
"""

from __future__ import annotations

import random as randomness
from collections.abc import Callable
from typing import Final

from trainmaster.controller.kube.clock import Clock

Random = Callable[[], float]
"""A source of numbers in [0, 1), as `random.random`."""

_RETRY_FIRST: Final = 0.005
_RETRY_CAP: Final = 1000.0
_RETRY_JITTER: Final = 0.1
"""Seconds, seconds, and the part of them by which a wait is shorter at most (W-10, W-15)."""

_LOOP_FIRST: Final = 0.8
_LOOP_CAP: Final = 30.0
_LOOP_RESET: Final = 120.0
"""Seconds: the first wait and the longest one, before jitter, and the quiet time that starts it over (R-27)."""

_DOUBLINGS_AT_MOST = 62
"""More doublings than this exceed any cap; it keeps the power small for keys that fail for days."""

STEPS_AT_MOST: Final = 100
BYTES_AT_MOST: Final = 2**18
"""A quarter of a mebibyte of JSON is decoded in one to two milliseconds."""


class KeyedBackoff:
    """Exponential delays, counted for each key."""

    def __init__(self, *, random: Random = randomness.random) -> None:
        self._random = random
        self._failures: dict[str, int] = {}

    def next_delay(self, key: str) -> float:
        """Count one more failure of `key` and return how long to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(_RETRY_FIRST * 2.0 ** min(failures, _DOUBLINGS_AT_MOST), _RETRY_CAP)
        return delay * (1.0 - _RETRY_JITTER * self._random())

    def forget(self, key: str) -> None:
        """Forget the failures of `key`."""
        self._failures.pop(key, None)


class Backoff:
    """Exponential delays of one loop that talks to a server."""

    def __init__(self, *, clock: Clock, random: Random = randomness.random) -> None:
        self._clock = clock
        self._random = random
        self._delay = _LOOP_FIRST
        self._last: float | None = None

    def reset(self) -> None:
        """Start over: what was tried has succeeded."""
        self._delay = _LOOP_FIRST
        self._last = None

    def next_delay(self) -> float:
        """Return how long to wait before the next try."""
        now = self._clock.monotonic()
        if self._last is not None and now - self._last > _LOOP_RESET:
            self._delay = _LOOP_FIRST
        delay = self._delay
        self._delay = min(self._delay * 2.0, _LOOP_CAP)
        wait = delay * (1.0 + self._random())
        # Quiet time is counted from the end of this wait; otherwise a wait near the reset time would reset itself.
        self._last = now + wait
        return wait


class Turns:
    """Counts the work that was done since other tasks had a turn."""

    __slots__ = ("_bytes", "_steps")

    def __init__(self) -> None:
        self._steps = 0
        self._bytes = 0

    def spent(self, size: int) -> bool:
        """Count one step on `size` bytes; True if it is time to pause."""
        self._steps += 1
        self._bytes += size
        if self._steps < STEPS_AT_MOST and self._bytes < BYTES_AT_MOST:
            return False
        self._steps = self._bytes = 0
        return True
