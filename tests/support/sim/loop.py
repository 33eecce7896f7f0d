"""An event loop on virtual time: when nothing is ready, time jumps to the next timer. No real I/O, no real waiting.

- Callbacks run in the order in which they became ready and timers in the order of their moments, so that a run is a
  function of its inputs.
- Tasks belong to a `Process` by their context. A process can be paused, as by a debugger or a hypervisor: nothing of it
  runs, time passes for everybody else, and what became due for it happens at once when it goes on.
- A program that waits for nothing at all raises `Deadlock`, one that never lets time pass `Spinning`.
"""

import asyncio
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context, ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
_TURNS_AT_MOST = 50_000
"""Turns of the loop within one moment; a busy scenario needs a few hundred."""


class Deadlock(Exception):
    """Every task waits, and nothing is due that could wake one up."""


class Spinning(Exception):
    """Tasks wake each other up without end, so that time stands still."""


class Process:
    """A program in the simulation; the context of its tasks names it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        """Whether it was killed: what still runs of it is on its way out and reaches nobody."""
        self.paused = False
        self.parked: list[asyncio.Handle] = []
        """What is to run when a paused process goes on."""

    def __repr__(self) -> str:
        return f"Process({self.name})"


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of one simulation."""

    # Parts of asyncio.BaseEventLoop that event loops share with it, but that its type stubs do not know.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _check_closed: Callable[[], None]

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turns = 0
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap; timers of one moment are due in the order in which they were set."""

    def time(self) -> float:
        """Seconds of virtual time since the simulation began."""
        return self._now

    def call_soon(  # type: ignore[override]  # the stubs demand a variadic generic that nothing here gains from
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next turn, or when its process goes on."""
        self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None and process.paused:
            process.parked.append(handle)
        else:
            self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at a moment, or when its process goes on after that."""
        self._check_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _run_once(self) -> None:
        """Run what is ready, or else what is due first: asyncio's own turn, without input and without looking at it."""
        timers, ready = self._timers, self._ready
        if not ready and not self._stopping:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise Deadlock("every task waits and no timer is set")
            if timers[0][0] > self._now:
                self._now = timers[0][0]
                self._turns = 0
        self._turns += 1
        if self._turns > _TURNS_AT_MOST:
            raise Spinning(f"time stands still at {self._now:.6f} s after {_TURNS_AT_MOST} turns of the loop")
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            if not ready:  # what was left belongs to a process that was paused in this turn
                break
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def pause(self, process: Process) -> None:
        """Stop everything of a process until `resume`."""
        process.paused = True
        process.parked += [handle for handle in self._ready if _process_of(handle) is process]
        process.parked += [timer for *_, timer in self._timers if _process_of(timer) is process]
        # In place, because a turn is under way.
        others = [handle for handle in self._ready if _process_of(handle) is not process]
        self._ready.clear()
        self._ready.extend(others)
        self._timers[:] = [entry for entry in self._timers if _process_of(entry[2]) is not process]
        heapq.heapify(self._timers)

    def resume(self, process: Process, *, uncounted: float = 0.0) -> None:
        """Let a process go on, with all that became due meanwhile.

        `uncounted` are the seconds that its monotonic clock did not count, because the whole machine slept: its timers
        move by as much.
        """
        process.paused = False
        for handle in process.parked:
            if isinstance(handle, asyncio.TimerHandle):
                handle._when += uncounted  # type: ignore[attr-defined]  # the stubs leave it out
                heapq.heappush(self._timers, (handle.when(), next(self._numbers), handle))
            else:
                self._ready.append(handle)
        process.parked.clear()

    def _write_to_self(self) -> None:
        """There is no other thread to wake this one up."""


def _process_of(handle: asyncio.Handle) -> Process | None:
    context: Context = handle._context  # type: ignore[attr-defined]  # the stubs leave it out
    return context.get(PROCESS)


class SimClock:
    """The clock of one program: virtual time, and a wall clock that may be wrong."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.skew = 0.0
        """Seconds by which the wall clock is ahead."""
        self.slept = 0.0
        """Seconds for which the machine was suspended, which the monotonic clock does not count."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        return self._loop.time() - self.slept

    def boottime(self) -> float:
        """Seconds since some fixed moment, those included for which the machine was suspended; never goes back."""
        return self._loop.time()

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return START + timedelta(seconds=self._loop.time() + self.skew)

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds`; zero lets other tasks run."""
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `callback` at `when` of `monotonic`."""
        at = when + self.slept
        while at - self.slept < when:
            at = math.nextafter(at, math.inf)
        return self._loop.call_at(at, callback)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[Any]:
        """Cancel the block after `seconds` and raise `TimeoutError` in its place."""
        return asyncio.timeout(seconds)
