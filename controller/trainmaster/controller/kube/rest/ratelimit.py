"""A limit on the requests of this process, for clusters whose administrators ask for one.

Guarantees:
- T-1: without a limiter the client does not limit itself and relies on the server's priority and fairness; with one,
  `qps` requests a second leave after a burst of `burst`.
- The bucket works by reservation: each request takes its place in the line at once, so the line is fair and its length
  is known. A request that is cancelled while it waits gives its place back.
- K-10: the wait is measured (`rest_client_rate_limiter_duration_seconds`, by the client).
"""

from __future__ import annotations

from trainmaster.controller.kube.clock import Clock


class RateLimiter:
    """A token bucket that may go into debt: who takes a token that is not there yet waits until it is."""

    def __init__(self, *, qps: float, burst: int, clock: Clock) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"a limit needs a positive qps and burst, not {qps:g} and {burst}")
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._counted_at = clock.monotonic()

    async def wait(self) -> None:
        """Take one token; return when it is there."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._counted_at) * self._qps) - 1.0
        self._counted_at = now
        if self._tokens >= 0:
            return
        try:
            await self._clock.sleep(-self._tokens / self._qps)
        except BaseException:
            self._tokens += 1.0
            raise
