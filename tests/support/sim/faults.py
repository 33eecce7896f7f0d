"""Faults: what can go wrong between a controller and its cluster, one class for each family.

A fault is named in a plan. It strikes at the k-th write of the managers (leases and events do not count, unless the
plan says so), at the n-th frame of the first watch of a resource, or as long as the run lasts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any

import orjson
from support.sim.loop import Process
from support.sim.server import Frames, Interference, Perform
from support.sim.wire import Answer, Pipe, Request, broken, refusal
from support.sim.world import World

from trainmaster.controller.kube.rest.errors import NotConnected

PAUSE = 40.0
"""Seconds for which a program stands still or is cut off: longer than a lease."""

LAG = 20.0
"""Seconds until a lagging watch cache has caught up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One perturbed run; its text replays it."""

    scenario: str
    fault: str
    k: int = 0
    """The write at which the fault strikes."""
    n: int = 0
    """The frame at which it strikes; the number of events by which a cache lags."""
    on: str = ""
    """The resource whose watch, or whose writes, are meant; several are joined by `+`."""
    seed: int = 0

    def __str__(self) -> str:
        given = [(each.name, getattr(self, each.name)) for each in fields(self)]
        return " ".join(f"{name}={value}" for name, value in given if value or name == "seed")

    @classmethod
    def read(cls, text: str) -> Plan:
        """Read what `str` wrote."""
        given: dict[str, Any] = dict(word.split("=", 1) for word in text.split())
        return cls(**given | {name: int(given[name]) for name in given.keys() & {"k", "n", "seed"}})


class Fault(Interference):
    """The base of all faults: disturbs nothing."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.pipes: list[tuple[Process, Pipe]] = []

    def begin(self) -> None:
        """Prepare the world before anything runs in it."""

    def stream(self, process: Process, request: Request, frames: Frames, pipe: Pipe) -> Frames:
        """Return the frames of a watch as they arrive."""
        self.pipes.append((process, pipe))
        return frames

    def lasts(self, seconds: float) -> None:
        """Note that the disturbance ends in so many seconds."""
        self.world.disturbed_until = max(self.world.disturbed_until, self.world.loop.time() + seconds)


# Faults of one write

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


# Faults of one watch


class WatchFault(Fault):
    """Strikes at the first watch of a resource: at its opening, or at its n-th frame."""

    def __init__(self, world: World, plan: Plan) -> None:
        super().__init__(world, plan)
        self.struck = False

    def _is_meant(self, request: Request) -> bool:
        return request.verb == "watch" and request.target.resource == self.plan.on and not self.struck

    async def request(self, process: Process, request: Request, perform: Perform) -> Answer:
        """Carry a request to the server and its answer back."""
        opening = OPENING_FAULTS.get(self.plan.fault)
        if opening is None or not self._is_meant(request):
            return await perform()
        self.struck = True
        return await opening()

    def stream(self, process: Process, request: Request, frames: Frames, pipe: Pipe) -> Frames:
        """Return the frames of a watch as they arrive."""
        if self.plan.fault not in FRAME_FAULTS or not self._is_meant(request):
            return frames
        self.struck = True
        return self._disturbed(frames, pipe)

    async def _disturbed(self, frames: Frames, pipe: Pipe) -> Frames:
        number = 0
        async for frame in frames:
            number += 1
            if number == self.plan.n:
                async for piece in FRAME_FAULTS[self.plan.fault](frame, pipe):
                    yield piece
                if not pipe.silent and self.plan.fault not in _GOES_ON:
                    return
            else:
                yield frame


async def _open_gone() -> Answer:
    return refusal(410, "Expired")


async def _open_throttled() -> Answer:
    return refusal(429, "TooManyRequests", retry_after=3)


async def _open_error() -> Answer:
    return refusal(500, "InternalError")


async def _open_too_large() -> Answer:
    return refusal(504, "Timeout")


async def _open_refused() -> Answer:
    raise NotConnected("simulated: connection refused")


async def _open_never() -> Answer:
    await _never()
    raise AssertionError


OPENING_FAULTS: dict[str, Callable[[], Awaitable[Answer]]] = {
    "open-gone": _open_gone,
    "open-throttled": _open_throttled,
    "open-error": _open_error,
    "open-timeout": _open_too_large,
    "open-refused": _open_refused,
    "open-silent": _open_never,
}


async def _silence(frame: bytes, pipe: Pipe) -> AsyncIterator[bytes]:
    pipe.silent = True
    yield frame


async def _truncate_frame(frame: bytes, pipe: Pipe) -> AsyncIterator[bytes]:
    yield frame[: len(frame) // 2]


async def _reset_stream(frame: bytes, pipe: Pipe) -> AsyncIterator[bytes]:
    yield frame[: len(frame) // 3]
    raise broken("watch")


async def _close_stream(frame: bytes, pipe: Pipe) -> AsyncIterator[bytes]:
    return
    yield


async def _expire_stream(frame: bytes, pipe: Pipe) -> AsyncIterator[bytes]:
    yield _error_frame(410, "Expired")


async def _fail_stream(frame: bytes, pipe: Pipe) -> AsyncIterator[bytes]:
    yield _error_frame(500, "InternalError")


async def _garble(frame: bytes, pipe: Pipe) -> AsyncIterator[bytes]:
    yield b"<html>502 Bad Gateway</html>\n"


async def _split(frame: bytes, pipe: Pipe) -> AsyncIterator[bytes]:
    """The frame arrives in pieces, with long pauses between them."""
    for start in range(0, len(frame), max(1, len(frame) // 4)):
        yield frame[start : start + max(1, len(frame) // 4)]
        await asyncio.sleep(5.0)


async def _foreign(frame: bytes, pipe: Pipe) -> AsyncIterator[bytes]:
    """An object of another kind comes before the frame."""
    obj = {"apiVersion": "v1", "kind": "Odd", "metadata": {"name": "odd", "resourceVersion": "1"}}
    yield orjson.dumps({"type": "MODIFIED", "object": obj}) + b"\n"
    yield frame


def _error_frame(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason}
    return orjson.dumps({"type": "ERROR", "object": status}) + b"\n"


FRAME_FAULTS: dict[str, Callable[[bytes, Pipe], AsyncIterator[bytes]]] = {
    "silent": _silence,
    "truncated": _truncate_frame,
    "reset": _reset_stream,
    "closed": _close_stream,
    "gone": _expire_stream,
    "failed": _fail_stream,
    "garbled": _garble,
    "split": _split,
    "foreign": _foreign,
}
_GOES_ON = frozenset({"split", "foreign", "silent"})


# Faults that last


class LastingFault(Fault):
    """Holds for the whole run, or for its first minutes."""

    def begin(self) -> None:
        """Prepare the world before anything runs in it."""
        network = self.world.server.network
        match self.plan.fault:
            case "no-bookmarks":
                network.bookmarks = False
            case "no-streaming-lists":
                network.streaming_lists = False
            case "pages":
                network.streaming_lists, network.page_size = False, 1
            case "expiring-pages":
                network.streaming_lists, network.page_size, network.pages_expire = False, 1, True
            case "slow":
                network.shortest, network.longest = 0.5, 3.0

    async def request(self, process: Process, request: Request, perform: Perform) -> Answer:
        """Carry a request to the server and its answer back."""
        chooser, now = self.world.chooser, self.world.loop.time()
        if self.plan.fault != "chaos" or now > CHAOS:
            return await perform()
        self.lasts(0.0)
        # A lease that nobody can renew says nothing about the writes that follow from holding it.
        if chooser.random() > (0.2 if request.target.resource != "leases" else 0.02):
            return await perform()
        before = chooser.random() < 0.5
        if not before:
            await perform()
        match chooser.randrange(5):
            case 0:
                return refusal(500, "InternalError")
            case 1:
                return refusal(429, "TooManyRequests", retry_after=1)
            case 2 if request.is_step and process in self.world.living:
                self.world.replace(process)
            case 3:
                await asyncio.sleep(20.0)
        raise broken(str(request))

    def stream(self, process: Process, request: Request, frames: Frames, pipe: Pipe) -> Frames:
        """Return the frames of a watch as they arrive."""
        match self.plan.fault:
            case "duplicates":
                return _duplicated(frames)
            case "coalesced":
                return self._coalesced(frames, self.world.server.known_to(request))
            case "late" if request.target.resource in self.plan.on.split("+"):
                return _late(frames)
            case "short-watches":
                return self._short(frames, pipe)
            case "chaos":
                return self._torn(frames)
        return frames

    async def _coalesced(self, frames: Frames, known: set[str]) -> Frames:
        """Of the events about one object that come close together, only the last arrives."""
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue()

        async def pull() -> None:
            async for frame in frames:
                arrived.put_nowait(frame)
            arrived.put_nowait(None)

        self.world.server.spawn(pull())
        while True:
            batch = [await arrived.get()]
            await asyncio.sleep(4.0)
            while not arrived.empty():
                batch.append(arrived.get_nowait())
            for frame in _last_states([frame for frame in batch if frame is not None], known):
                yield frame
            if batch[-1] is None:
                return

    async def _short(self, frames: Frames, pipe: Pipe) -> Frames:
        self.world.loop.call_later(self.world.chooser.uniform(2.0, 20.0), pipe.end)
        async for frame in frames:
            yield frame

    async def _torn(self, frames: Frames) -> Frames:
        async for frame in frames:
            if self.world.loop.time() < CHAOS and self.world.chooser.random() < 0.1:
                yield frame[: self.world.chooser.randrange(len(frame))]
                raise broken("watch")
            yield frame


CHAOS = 120.0
"""Seconds for which chaos lasts."""

LASTING_FAULTS = (
    "none",
    "no-bookmarks",
    "no-streaming-lists",
    "pages",
    "expiring-pages",
    "slow",
    "duplicates",
    "coalesced",
    "short-watches",
    "chaos",
)
LATE = "late"


async def _duplicated(frames: Frames) -> Frames:
    """Every event comes twice, the second time as a change of nothing."""
    async for frame in frames:
        yield frame
        if not frame.startswith(b'{"type":"BOOKMARK"'):
            yield frame.replace(b'{"type":"ADDED"', b'{"type":"MODIFIED"', 1)


async def _late(frames: Frames) -> Frames:
    """The events of this watch come long after those of the others."""
    async for frame in frames:
        if not frame.startswith(b'{"type":"BOOKMARK"'):
            await asyncio.sleep(7.0)
        yield frame


def _last_states(frames: list[bytes], known: set[str]) -> list[bytes]:
    latest: dict[str, tuple[str, bytes]] = {}
    for number, frame in enumerate(frames):
        event = orjson.loads(frame)
        metadata = event["object"]["metadata"]
        bookmark = event["type"] == "BOOKMARK"
        key = f"bookmark {number}" if bookmark else f"{metadata.get('namespace', '')}/{metadata['name']}"
        latest.pop(key, None)
        latest[key] = event["type"], frame
    shown = []
    for key, (kind, frame) in latest.items():
        if kind == "DELETED":
            if key in known:
                known.discard(key)
                shown.append(frame)
        elif kind == "BOOKMARK":
            shown.append(frame)
        else:
            seen = b"MODIFIED" if key in known else b"ADDED"
            known.add(key)
            shown.append(frame.replace(b'"type":"%s"' % kind.encode(), b'"type":"%s"' % seen, 1))
    return shown


def fault_of(world: World, plan: Plan) -> Fault:
    """Make the fault that a plan names."""
    if plan.fault in WRITE_FAULTS:
        return WriteFault(world, plan)
    if plan.fault in FRAME_FAULTS or plan.fault in OPENING_FAULTS:
        return WatchFault(world, plan)
    if plan.fault in LASTING_FAULTS or plan.fault == LATE:
        return LastingFault(world, plan)
    raise ValueError(f"there is no fault {plan.fault!r}")
