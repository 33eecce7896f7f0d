"""Token buckets, as in client-go's flowcontrol: for the requests of this process, and for those of others by key.

Guarantees:
- T-1: without a limiter the client does not limit itself and relies on the server's priority and fairness; with one,
  `qps` requests a second leave after a burst of `burst`.
- Who waits takes a place in the line at once, so the line is fair and its length is known. A wait that is cancelled
  gives its place back.
- Who need not wait is told when to come again: nothing is taken then.
- Memory is bounded: of many keys, the bucket that was used least recently is forgotten, which only ever gives its key
  more.
- K-10: the wait is measured (`rest_client_rate_limiter_duration_seconds`, by the client).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

from trainmaster.controller.kube.clock import Clock

K = TypeVar("K", bound=Hashable)


class RateLimiter:
    """A token bucket."""

    __slots__ = ("_burst", "_clock", "_counted_at", "_qps", "_tokens")

    def __init__(self, *, qps: float, burst: int, clock: Clock) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"a limit needs a positive qps and burst, not {qps:g} and {burst}")
        self._qps = qps
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._counted_at = clock.monotonic()

    async def wait(self) -> None:
        """Take one token, which may lead into debt; return when it is there."""
        self._take()
        if self._tokens >= 0:
            return
        try:
            await self._clock.sleep(-self._tokens / self._qps)
        except BaseException:
            self._tokens += 1.0
            raise

    def try_accept(self) -> float:
        """Take one token if it is there, and return zero; otherwise return the seconds until it is."""
        delay = self.delay()
        if delay == 0.0:
            self._take()
        return delay

    def give_back(self) -> None:
        """Put a token back that was taken for something that did not happen."""
        self._tokens = min(self._burst, self._tokens + 1.0)

    def delay(self) -> float:
        """Return the seconds until a token is there; zero if one is."""
        return max(0.0, (1.0 - self._tokens_at(self._clock.monotonic())) / self._qps)

    def _take(self) -> None:
        now = self._clock.monotonic()
        self._tokens = self._tokens_at(now) - 1.0
        self._counted_at = now

    def _tokens_at(self, now: float) -> float:
        return min(self._burst, self._tokens + (now - self._counted_at) * self._qps)


class KeyedRateLimiter(Generic[K]):
    """A token bucket for each key."""

    def __init__(self, *, qps: float, burst: int, maxsize: int, clock: Clock) -> None:
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._buckets: LRUCache[K, RateLimiter] = LRUCache(maxsize)

    def try_accept(self, key: K) -> float:
        """Take a token of the key if it is there, and return zero; otherwise return the seconds until it is."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = RateLimiter(qps=self._qps, burst=self._burst, clock=self._clock)
        return bucket.try_accept()

    def give_back(self, key: K) -> None:
        """Put a token of the key back that was taken for something that did not happen."""
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.give_back()
