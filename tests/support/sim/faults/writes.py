"""Faults of one write: of the request, of its answer, or of the program that sends it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from support.sim.faults.plan import Fault, Plan
from support.sim.loop import Process
from support.sim.server import Perform
from support.sim.wire import Answer, Pipe, Request, broken, refusal
from support.sim.world import World

from trainmaster.controller.kube.rest.errors import NotConnected

PAUSE = 40.0
"""Seconds for which a program stands still or is cut off: longer than a lease."""

LAG = 20.0
"""Seconds until a lagging watch cache has caught up."""

Strike = Callable[["WriteFault", Process, Request, Perform], Awaitable[Answer]]


class WriteFault(Fault):
    """Strikes at the k-th write."""

    def __init__(self, world: World, plan: Plan) -> None:
        super().__init__(world, plan)
        self.writes = 0
        self.horizon_of: int | None = None
        self.horizon_until = 0.0
        self.victim: Process | None = None
        self.cut_until = 0.0

    async def request(self, process: Process, request: Request, perform: Perform) -> Answer:
        """Carry a request to the server and its answer back."""
        if process is self.victim and self.world.loop.time() < self.cut_until:
            await _never()
        if request.target.resource == self.plan.on if self.plan.on else request.is_step:
            self.writes += request.verb not in {"get", "list", "watch"}
            if self.writes == self.plan.k and self.victim is None:
                self.victim = process
                return await WRITE_FAULTS[self.plan.fault](self, process, request, perform)
        return await perform()

    def horizon(self, process: Process) -> int | None:
        """Return the revision that the watch cache has reached."""
        return self.horizon_of if self.world.loop.time() < self.horizon_until else None


async def _never() -> None:
    await asyncio.Event().wait()


async def _crash_before(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    fault.world.replace(process)
    raise broken(str(request))


async def _crash_after(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    await perform()
    fault.world.replace(process)
    raise broken(str(request))


async def _travel_in_time(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    await perform()
    fault.world.replace(process)
    history = fault.world.server.history
    fault.horizon_of = history[max(0, len(history) - 1 - fault.plan.n)].revision
    fault.horizon_until = fault.world.loop.time() + LAG
    fault.lasts(LAG)
    raise broken(str(request))


async def _lose_answer(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    await perform()
    await _never()
    raise AssertionError


async def _lose_request(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    await _never()
    raise AssertionError


async def _reset_before(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    raise broken(str(request))


async def _reset_after(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    await perform()
    raise broken(str(request))


async def _refuse_connection(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    raise NotConnected(f"{request}: simulated: connection refused")


async def _truncate(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    answer = await perform()
    whole = b"".join(answer.pipe.pieces)
    answer.pipe = Pipe(deque([whole[: len(whole) // 2]]), ended=True, failure=broken(str(request)))
    return answer


async def _pause_after(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    answer = await perform()
    loop = fault.world.loop
    loop.pause(process)
    loop.call_later(PAUSE, loop.resume, process)
    fault.lasts(PAUSE)
    return answer


async def _sleep_after(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
    """The machine is suspended, as a laptop or a virtual machine is: its monotonic clock does not count that."""
    answer = await perform()
    loop, clock = fault.world.loop, fault.world.clocks[process]

    def wake() -> None:
        clock.slept += PAUSE
        loop.resume(process, uncounted=PAUSE)

    loop.pause(process)
    loop.call_later(PAUSE, wake)
    fault.lasts(PAUSE)
    return answer


def _cut(*, after: bool) -> Strike:
    async def strike(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
        """The network of the program swallows everything for a while; connections from before stay dead."""
        fault.cut_until = fault.world.loop.time() + PAUSE
        fault.lasts(PAUSE)
        for owner, pipe in fault.pipes:
            pipe.silent = pipe.silent or owner is process
        if after:
            await perform()
        await _never()
        raise AssertionError

    return strike


def _refuse(status: int, reason: str, *, retry_after: int | None = None) -> Strike:
    async def strike(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
        return refusal(status, reason, retry_after=retry_after)

    return strike


def _jump(seconds: float) -> Strike:
    async def strike(fault: WriteFault, process: Process, request: Request, perform: Perform) -> Answer:
        """The wall clock of the program is wrong until time synchronisation sets it right."""
        clock = fault.world.clocks[process]
        clock.skew = seconds
        fault.world.loop.call_later(60.0, setattr, clock, "skew", 0.0)
        fault.lasts(60.0)
        return await perform()

    return strike


TIME_TRAVEL = "time-travel"

WRITE_FAULTS: dict[str, Strike] = {
    "crash-before": _crash_before,
    "crash-after": _crash_after,
    "answer-lost": _lose_answer,
    "request-lost": _lose_request,
    "reset-before": _reset_before,
    "reset-after": _reset_after,
    "refused": _refuse_connection,
    "truncated-answer": _truncate,
    "conflict": _refuse(409, "Conflict"),
    "throttled": _refuse(429, "TooManyRequests", retry_after=2),
    "throttled-bare": _refuse(429, "TooManyRequests"),
    "error": _refuse(500, "InternalError"),
    "unavailable": _refuse(503, "ServiceUnavailable", retry_after=1),
    "unavailable-bare": _refuse(503, "ServiceUnavailable"),
    "pause": _pause_after,
    "sleep": _sleep_after,
    "cut-before": _cut(after=False),
    "cut-after": _cut(after=True),
    "clock-forward": _jump(3600.0),
    "clock-back": _jump(-3600.0),
    TIME_TRAVEL: _travel_in_time,
}
