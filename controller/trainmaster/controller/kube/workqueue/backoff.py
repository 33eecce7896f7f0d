"""How long a key waits before its next try; client-go's ItemExponentialFailureRateLimiter.

Guarantees:
- W-10: a wait doubles per key from 5 ms to 1000 s, without overflow; `forget` starts that key over.
- W-14: there is no bucket shared by all keys: after a mass failure each key recovers at its own pace.
- W-15: the jitter only ever shortens a wait: keys that failed together drift apart, also at the cap, and it holds.
"""

from __future__ import annotations

import random as randomness
from typing import Final

from trainmaster.controller.kube.clock import Random

_BASE_DELAY: Final = 0.005
_MAX_DELAY: Final = 1000.0
_JITTER: Final = 0.1
"""Seconds, seconds, and the part of them by which a wait is shorter at most (W-10, W-15)."""

_DOUBLINGS_AT_MOST: Final = 62
"""More doublings than this exceed any cap; it keeps the power small for keys that fail for days."""


class KeyedBackoff:
    """Exponential delays, counted for each key."""

    def __init__(self, *, random: Random = randomness.random) -> None:
        self._random = random
        self._failures: dict[str, int] = {}

    def next_delay(self, key: str) -> float:
        """Count one more failure of `key` and return how long to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(_BASE_DELAY * 2.0 ** min(failures, _DOUBLINGS_AT_MOST), _MAX_DELAY)
        return delay * (1.0 - _JITTER * self._random())

    def failures(self, key: str) -> int:
        """Return how often `key` has failed since it was last forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: str) -> None:
        """Forget the failures of `key`."""
        self._failures.pop(key, None)
