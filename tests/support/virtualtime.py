"""Virtual time, which never moves by itself: tests and simulations say when it passes.

Timers fire in order of their due time, ties in order of creation.
"""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from trainmaster.controller.kube.clock import Timer


class _VirtualTimer:
    """A call that is due at a moment of virtual time."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class VirtualClock:
    """A clock for tests and simulations; it stands still until `advance` moves it."""

    def __init__(self, *, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0
        self._timers: list[tuple[float, int, _VirtualTimer]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        """Seconds of virtual time that have passed."""
        return self._elapsed

    def boottime(self) -> float:
        """Seconds of virtual time that have passed."""
        return self._elapsed

    def now(self) -> datetime:
        """Return the virtual wall-clock time in UTC."""
        return self._start + timedelta(seconds=self._elapsed)

    async def sleep(self, seconds: float) -> None:
        """Wait until virtual time has passed; zero lets other tasks run."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self.call_at(self._elapsed + seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` when virtual time reaches `when`."""
        timer = _VirtualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[None]:
        """Cancel the block after `seconds` of virtual time and raise `TimeoutError` in its place."""
        async with asyncio.timeout(None) as scope:
            loop = asyncio.get_running_loop()
            timer = self.call_at(self._elapsed + seconds, lambda: scope.reschedule(loop.time()))
            try:
                yield
            finally:
                timer.cancel()

    def step(self, seconds: float) -> None:
        """Move time on and fire what is due, without letting tasks run."""
        target = self._elapsed + seconds
        while self._timers and self._timers[0][0] <= target:
            when, _, timer = heapq.heappop(self._timers)
            self._elapsed = max(self._elapsed, when)
            timer.fire()
        self._elapsed = target

    def skip(self, seconds: float) -> None:
        """Move time on, and serve no timer."""
        self._elapsed += seconds

    async def advance(self, seconds: float) -> None:
        """Move time on, timer by timer, letting tasks run between them so that each sees the moment it waited for."""
        target = self._elapsed + seconds
        await settle()
        while self._timers and self._timers[0][0] <= target:
            self.step(max(0.0, self._timers[0][0] - self._elapsed))
            await settle()
        self.step(target - self._elapsed)
        await settle()


async def settle(rounds: int = 50) -> None:
    """Let every task run that waits for nothing but its turn; the count covers the longest chain of wake-ups."""
    for _ in range(rounds):
        await asyncio.sleep(0)
