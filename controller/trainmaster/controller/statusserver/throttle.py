"""Throttling: a token bucket for each of many keys.

Guarantees:
- Nobody waits: who comes too early is told when to come again.
- Memory is bounded: the bucket that was used least recently is forgotten, which only ever gives its key more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from trainmaster.controller.kube.clock import Clock

K = TypeVar("K", bound=Hashable)


class Throttle(Generic[K]):
    """Lets each key do something `rate` times a second, after a burst.

    Args:
        rate: Tokens a second.
        burst: The most tokens of a bucket.
        limit: The most buckets.
        clock: The time.
    """

    def __init__(self, *, rate: float, burst: int, limit: int, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._limit = limit
        self._clock = clock
        self._buckets: OrderedDict[K, tuple[float, float]] = OrderedDict()
        """Tokens, and when they were counted."""

    def wait_for(self, key: K) -> float:
        """Return the seconds until the key has a token; zero if it has one now."""
        return max(0.0, (1.0 - self._tokens(key)) / self._rate)

    def take(self, key: K) -> float:
        """Take a token if there is one, and return zero; otherwise return the seconds until there is one."""
        wait = self.wait_for(key)
        if wait == 0.0:
            self._buckets[key] = (self._tokens(key) - 1.0, self._clock.monotonic())
            self._buckets.move_to_end(key)
            if len(self._buckets) > self._limit:
                self._buckets.popitem(last=False)
        return wait

    def _tokens(self, key: K) -> float:
        now = self._clock.monotonic()
        tokens, counted_at = self._buckets.get(key, (float(self._burst), now))
        return min(float(self._burst), tokens + (now - counted_at) * self._rate)
