"""Faults of one watch: at its opening, or at one of its frames."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import orjson
from support.sim.faults.plan import Fault, Plan
from support.sim.loop import Process
from support.sim.server import Frames, Perform
from support.sim.wire import Answer, Pipe, Request, broken, refusal
from support.sim.world import World

from trainmaster.controller.kube.rest.errors import NotConnected


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
    await asyncio.Event().wait()
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
