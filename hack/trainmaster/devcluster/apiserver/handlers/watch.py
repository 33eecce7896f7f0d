"""Watch streams: one JSON object a line, for as long as the client wants to listen.

Guarantees:
- headers leave before the first event, and an event leaves at once; only on a server with many streams do events that
  follow close upon each other wait a few milliseconds, so that they leave together;
- a bookmark is never ahead of the events that the client was sent: it may resume from any of them;
- a stream ends cleanly: at its timeout, when the server stops, or after an ERROR event that says why;
- a watch from a forgotten revision is an ERROR event with 410 Expired; the client lists again;
- a watch from a revision that has not come yet is silent until it comes; the present objects (`sendInitialEvents`) are
  never shown to a client that has seen newer ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import orjson
from aiohttp import web

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.handlers.freshness import wait_until_fresh
from trainmaster.devcluster.apiserver.handlers.response import ResponseEncoder
from trainmaster.devcluster.apiserver.http.query import ListOptions, read_resource_version
from trainmaster.devcluster.apiserver.http.responsewriters import start_stream
from trainmaster.devcluster.apiserver.registry.generic import Api, Watch, WatchEvent
from trainmaster.runtime.jsontree import JsonObject

# Events that may be written in a row before other requests get their turn.
_BATCH = 100
# Seconds of rest after a write, for each open stream: a write costs far more than an event, so among many streams the
# clients that write would starve if each event were a write of its own.
_REST = 0.0002
# The API server's own number of seconds (KEP-956).
_BEFORE_THE_END = 2.0
# Without timeoutSeconds a watch lasts a random time between these, so that clients do not return all at once.
_SHORTEST, _LONGEST = 30 * 60.0, 60 * 60.0


class FrameWriter(Protocol):
    """Where the frames of a watch go."""

    async def write(self, data: bytes) -> None:
        """Send frames, each a line."""


FrameWrapper: TypeAlias = Callable[[web.StreamResponse, Callable[[], None]], Awaitable[FrameWriter]]
"""From the response of a watch, and what ends the watch, to where its frames go in place of the response."""

FRAME_WRAPPER: web.RequestKey[FrameWrapper] = web.RequestKey("frame_wrapper")
"""Where a middleware leaves what shall come between a watch and its response."""


class WatchServer:
    """Serves watch streams and ends them all when the server stops."""

    def __init__(self, api: Api, *, bookmark_interval: float, freshness_wait: float) -> None:
        self._api = api
        self._freshness_wait = freshness_wait
        self._bookmark_interval = bookmark_interval
        self._open: set[Watch] = set()
        self.stopped = False
        """Whether the server is on its way down."""

    async def serve(
        self, request: web.Request, encoder: ResponseEncoder, *, namespace: str | None, options: ListOptions
    ) -> web.StreamResponse:
        """Write the stream until it ends."""
        if options.send_initial_events:
            await wait_until_fresh(self._api, options.resource_version, seconds=self._freshness_wait)
        try:
            watch = self._start(encoder, namespace, options)
        except StatusError as error:
            if error.code != 410:
                raise
            response = await start_stream(request, content_type="application/json")
            await response.write(_line("ERROR", orjson.dumps(error.status())))
            return response
        self._open.add(watch)
        try:
            async with watch:
                return await self._stream(request, watch, encoder, options)
        finally:
            self._open.discard(watch)

    def stop(self) -> None:
        """End every stream, the present and the coming ones."""
        self.stopped = True
        for watch in list(self._open):
            watch.close()

    def _start(self, encoder: ResponseEncoder, namespace: str | None, options: ListOptions) -> Watch:
        since = read_resource_version(options.resource_version)
        if options.send_initial_events:
            since = None
        elif options.initial_events_refused and not since:
            since = self._api.revision
        return self._api.watch(
            encoder.kind.resource,
            namespace=namespace,
            since=since,
            labels=options.labels,
            fields=options.fields,
            bookmark=options.send_initial_events and options.allow_bookmarks,
        )

    async def _stream(
        self, request: web.Request, watch: Watch, encoder: ResponseEncoder, options: ListOptions
    ) -> web.StreamResponse:
        response = await start_stream(request, content_type="application/json")
        wrap = request.get(FRAME_WRAPPER)
        frames: FrameWriter = response if wrap is None else await wrap(response, watch.close)
        seconds = options.timeout_seconds or random.uniform(_SHORTEST, _LONGEST)  # noqa: S311 - no secret
        # Closing the watch ends the loop below in an orderly way, after the event that is being written.
        timer = asyncio.get_running_loop().call_later(seconds, watch.close)
        bookmarks = None
        if options.allow_bookmarks:
            bookmarks = asyncio.create_task(self._bookmark(frames, watch, encoder, seconds=seconds))
        try:
            if not self.stopped:
                await self._write_events(frames, watch, encoder)
        except StatusError as error:
            await frames.write(_line("ERROR", orjson.dumps(error.status())))
        finally:
            timer.cancel()
            if bookmarks is not None:
                bookmarks.cancel()
        return response

    async def _write_events(self, frames: FrameWriter, watch: Watch, encoder: ResponseEncoder) -> None:
        first = True
        async for event in watch:
            # No await from taking an event to handing it to the transport: bookmarks count what was taken.
            lines = []
            following: WatchEvent | None = event
            while following is not None:
                if following.record is None:
                    lines.append(_bookmark_line(encoder, following.revision, initial_events_end=True))
                else:
                    lines.append(_line(following.type, encoder.watch_event(following.record, first=first)))
                    first = False
                following = watch.take() if len(lines) < _BATCH else None
            await frames.write(b"".join(lines))
            await asyncio.sleep(_REST * len(self._open))

    async def _bookmark(self, frames: FrameWriter, watch: Watch, encoder: ResponseEncoder, *, seconds: float) -> None:
        """Write a bookmark now and then, and one shortly before the end: the next watch starts from it.

        No event can be in flight while this writes: an event is taken from the watch and handed to the transport in one
        step of the event loop, and `watch.revision` counts only what was taken.
        """
        with contextlib.suppress(ConnectionError):  # the writer of the events meets the same error and ends the stream
            left = seconds - _BEFORE_THE_END
            while left > 0:
                pause = min(self._bookmark_interval, left)
                left -= pause
                await asyncio.sleep(pause)
                if watch.revision:
                    await frames.write(_bookmark_line(encoder, watch.revision))


def _bookmark_line(encoder: ResponseEncoder, revision: int, *, initial_events_end: bool = False) -> bytes:
    metadata: JsonObject = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return _line("BOOKMARK", encoder.bookmark(metadata))


def _line(event_type: str, obj: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), obj)
