"""From the bytes of a watch to its events.

Guarantees:
- P-3: frames of any length up to a ceiling are read, also those that exceed the line limits of HTTP libraries; a
  longer one raises `ResponseTooLarge`.
- R-32, P-5: a stream that is silent for longer than the inactivity limit raises `StreamSilent`.
- R-28: an ERROR frame raises the same `ApiError` as a refused request would.
- P-8: a frame that is not a watch event raises `MalformedResponse`; a stream cut inside a frame raises `StreamBroken`.
  Neither is ever taken for an event.
- P-20: a frame is decoded once, by the fastest decoder there is, and never through a model.
- An object that this decoder refuses is read in parts (`partial`): it stops neither its watch nor those after it.

The stream owns nothing: whoever opened the response closes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Final, NamedTuple, TypeVar

import orjson

from trainmaster.controller.kube.clock import Clock, Timer
from trainmaster.controller.kube.rest.errors import (
    MalformedResponse,
    ResponseTooLarge,
    StreamBroken,
    StreamSilent,
    excerpt,
    from_status,
)
from trainmaster.controller.kube.rest.partial import read_frame
from trainmaster.runtime.jsontext import JsonError
from trainmaster.runtime.jsontree import JsonObject

LINE_LIMIT: Final = 64 * 2**20
"""Twenty times what etcd stores in one object; whatever is longer is not a watch frame."""

INACTIVITY_LIMIT: Final = 70.0
"""Seconds; somewhat above the bookmark that servers send about once a minute (R-32)."""

_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})

T = TypeVar("T")


class WatchEvent(NamedTuple):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: JsonObject
    size: int
    """The bytes of its frame."""


class LineSplitter:
    """Cuts chunks of bytes, as they come from the wire, into lines."""

    def __init__(self, *, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk and return the lines it completes, without their newlines."""
        lines: list[bytes] = []
        start = 0
        # `split` looks at each byte for itself, which takes several times as long.
        while (end := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:end]
            if self._parts:
                self._hold(line)
                line = self.rest()
            else:
                self._check(len(line))
            lines.append(line)
            start = end + 1
        if start < len(chunk):
            self._hold(chunk[start:])
        return lines

    def rest(self) -> bytes:
        """Take what came after the last newline."""
        line = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return line

    def _hold(self, part: bytes) -> None:
        self._size += len(part)
        self._check(self._size)
        self._parts.append(part)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise ResponseTooLarge(
                f"a line of the stream exceeds {self._limit} bytes; is the server a Kubernetes API server?"
            )


class InactivityTimer:
    """Ends a wait that takes too long by `TimeoutError`; one timer for many waits of one task after the other.

    A watch waits for each of its chunks: a timer for each would cost more than to read it.
    """

    def __init__(self, clock: Clock, limit: float) -> None:
        self._clock = clock
        self._limit = limit
        self._timer: Timer | None = None
        self._waiting: asyncio.Task[object] | None = None
        self._since = 0.0
        self._expired = False

    async def wait(self, coming: Awaitable[T]) -> T:
        """Wait for something, for no longer than the limit."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        cancelling = task.cancelling()
        self._since, self._expired, self._waiting = self._clock.monotonic(), False, task
        if self._timer is None:
            self._timer = self._clock.call_at(self._since + self._limit, self._tick)
        try:
            return await coming
        except asyncio.CancelledError as error:
            if self._expired and task.uncancel() <= cancelling:
                raise TimeoutError from error
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        due = self._since + self._limit
        if self._waiting is None:
            return  # the next wait sets it again
        if self._clock.monotonic() < due:
            self._timer = self._clock.call_at(due, self._tick)
        else:
            self._expired = True
            self._waiting.cancel()


class WatchStream:
    """The events of one open watch, in the order of the wire."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        clock: Clock,
        inactivity_limit: float = INACTIVITY_LIMIT,
        line_limit: int = LINE_LIMIT,
    ) -> None:
        self._chunks = chunks
        self._timer = InactivityTimer(clock, inactivity_limit)
        self._inactivity_limit = inactivity_limit
        self._splitter = LineSplitter(limit=line_limit)

    async def __aiter__(self) -> AsyncIterator[WatchEvent]:
        """Yield events until the server ends the stream."""
        try:
            while (chunk := await self._next_chunk()) is not None:
                for line in self._splitter.feed(chunk):
                    if line.strip():
                        yield decode_event(line)
        finally:
            self._timer.close()
        rest = self._splitter.rest().strip()
        if rest:
            try:
                event = decode_event(rest)
            except MalformedResponse as error:
                raise StreamBroken(f"the watch ended inside a frame, after {len(rest)} bytes of it") from error
            yield event

    async def _next_chunk(self) -> bytes | None:
        try:
            return await self._timer.wait(anext(self._chunks, None))
        except TimeoutError as error:
            raise StreamSilent(f"the watch carried nothing for {self._inactivity_limit:g} s") from error


def decode_event(line: bytes) -> WatchEvent:
    """Decode one frame; an ERROR frame raises what it says."""
    try:
        frame = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            frame = read_frame(line)
        except JsonError:
            raise MalformedResponse(f"a watch frame is not JSON ({error}): {excerpt(line)}") from error
    obj = frame.get("object") if isinstance(frame, dict) else None
    if not isinstance(obj, dict):
        raise MalformedResponse(f"a watch frame has no object: {excerpt(line)}")
    kind = frame.get("type")
    if kind == "ERROR":
        raise from_status(obj)
    if not isinstance(kind, str) or kind not in _TYPES:
        raise MalformedResponse(f"a watch frame has the unknown type {str(kind)[:100]!r}: {excerpt(line)}")
    return WatchEvent(kind, obj, len(line))
