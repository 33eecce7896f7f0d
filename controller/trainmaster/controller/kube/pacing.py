"""How long to wait before the next try.

Guarantees:
- W-10: `KeyedBackoff` doubles per key from 5 ms to 1000 s, without overflow; `forget` starts that key over.
- W-14: there is no bucket shared by all keys: after a mass failure each key recovers at its own pace.
- W-15: the jitter only ever shortens a wait: keys that failed together drift apart, also at the cap, and it holds.
- R-27: `Backoff` waits 0.8 s doubling to 30 s, times 1 to 2, and starts over after two quiet minutes.
"""

from __future__ import annotations

import random as randomness
from collections.abc import Callable

from trainmaster.controller.kube.clock import Clock

Random = Callable[[], float]
"""A source of numbers in [0, 1), as `random.random`."""

_DOUBLINGS_AT_MOST = 62
"""More doublings than this exceed any cap; it keeps the power small for keys that fail for days."""


class KeyedBackoff:
    """Exponential delays, counted for each key."""

    def __init__(
        self,
        *,
        base: float = 0.005,
        cap: float = 1000.0,
        jitter: float = 0.1,
        random: Random = randomness.random,
    ) -> None:
        self._base = base
        self._cap = cap
        self._jitter = jitter
        self._random = random
        self._failures: dict[str, int] = {}

    def next_delay(self, key: str) -> float:
        """Count one more failure of `key` and return how long to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._base * 2.0 ** min(failures, _DOUBLINGS_AT_MOST), self._cap)
        return delay * (1.0 - self._jitter * self._random())

    def forget(self, key: str) -> None:
        """Forget the failures of `key`."""
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        """How often `key` failed since it was last forgotten."""
        return self._failures.get(key, 0)


class Backoff:
    """Exponential delays of one loop that talks to a server."""

    def __init__(
        self,
        *,
        clock: Clock,
        first: float = 0.8,
        factor: float = 2.0,
        cap: float = 30.0,
        jitter: float = 1.0,
        reset_after: float = 120.0,
        random: Random = randomness.random,
    ) -> None:
        self._clock = clock
        self._first = first
        self._factor = factor
        self._cap = cap
        self._jitter = jitter
        self._reset_after = reset_after
        self._random = random
        self._delay = first
        self._last: float | None = None

    def next_delay(self) -> float:
        """Return how long to wait before the next try."""
        now = self._clock.monotonic()
        if self._last is not None and now - self._last > self._reset_after:
            self._delay = self._first
        delay = self._delay
        self._delay = min(self._delay * self._factor, self._cap)
        wait = delay * (1.0 + self._jitter * self._random())
        # Quiet time is counted from the end of this wait; otherwise a wait near the reset time would reset itself.
        self._last = now + wait
        return wait
