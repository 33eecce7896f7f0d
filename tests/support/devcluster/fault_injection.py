"""Faults over HTTP: carrying out what `faults` decides, and the control API for tests in other processes.

- Requests for resources meet faults after they were let in, and before anything else; the control API never does.
- Without rules a request costs one test of a flag, and a watch nothing.

The control API is there only if its routes were given to the server, and for administrators only:

    POST   /trainmaster.dev/faults  add one: {"rule": {"verb": "get"}, "action": {"type": "delay", "seconds": 1}}
    DELETE /trainmaster.dev/faults  remove all
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler
from support.devcluster.faults import Delay, Fault, FaultRequest, Faults, Refuse, Reset, StallWatch

from trainmaster.devcluster.apiserver.filters.authorization import require_administrator
from trainmaster.devcluster.apiserver.handlers.watch import FRAME_WRAPPER, FrameWrapper, FrameWriter
from trainmaster.devcluster.apiserver.http.bodies import read_object
from trainmaster.devcluster.apiserver.http.query import read_boolean
from trainmaster.devcluster.apiserver.http.request_info import request_info_of, verb_of
from trainmaster.devcluster.apiserver.http.responsewriters import json_response

PATH = "/trainmaster.dev/faults"

_WHAT = "inject faults"

_ACTIONS: dict[str, type[Delay | Refuse]] = {"delay": Delay, "refuse": Refuse}
"""What the control API knows."""

_STALLED_BY = web.RequestKey("stalled_by", Fault)
# Linger for no time: closing the socket sends a reset in place of an orderly end.
_NO_LINGER = struct.pack("ii", 1, 0)


class FaultInjector:
    """The middleware."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    @web.middleware
    async def inject(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request, unless a fault keeps it from being handled."""
        if not self._faults.active or (looked_at := self._describe(request)) is None:
            return await handler(request)
        response_is_lost = False
        for fault in self._faults.striking(looked_at):
            match fault.action:
                case Delay(seconds=seconds):
                    await asyncio.sleep(seconds)
                case Refuse() as refusal:
                    raise refusal.error()
                case Reset(when="before"):
                    raise _reset(request)
                case Reset():
                    response_is_lost = True
                case StallWatch(after=after):
                    wrapper: FrameWrapper = partial(_stalling, request, fault, after)
                    request[FRAME_WRAPPER] = wrapper
        response = await handler(request)
        if response_is_lost:
            raise _reset(request)
        if (stall := request.get(_STALLED_BY)) is not None:
            await stall.removed.wait()
            raise _reset(request)
        return response

    def _describe(self, request: web.Request) -> FaultRequest | None:
        info = request_info_of(request)
        if info is None:
            return None
        watching = request.method == "GET" and read_boolean(request.query, "watch")
        return FaultRequest(
            verb=verb_of(request.method, named=info.name is not None, watching=watching) or request.method.lower(),
            resource=info.resource,
            subresource=info.subresource or "",
            user_agent=request.headers.get("User-Agent", ""),
        )


async def _stalling(
    request: web.Request, fault: Fault, after: int, response: web.StreamResponse, end: Callable[[], None]
) -> FrameWriter:
    """Return where the frames of a watch go that stalls after some of them; `end` ends the watch."""
    return _StallingWriter(request, response, fault, after, end)


class _StallingWriter:
    """The frames of a watch: as many as still arrive, then none."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, fault: Fault, after: int, end: Callable[[], None]
    ) -> None:
        self._request = request
        self._response = response
        self._fault = fault
        self._left = after
        self._end = end
        self._stall_if_due()

    async def write(self, data: bytes) -> None:
        """Send what still arrives."""
        for frame in data.splitlines(keepends=True):
            if _STALLED_BY in self._request:
                return
            self._left -= 1
            await self._response.write(frame)
            self._stall_if_due()

    def _stall_if_due(self) -> None:
        if self._left <= 0 and not self._fault.removed.is_set():
            self._request[_STALLED_BY] = self._fault
            self._fault.on_removal(self._end)


class FaultControl:
    """The control API."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [web.post(PATH, self._add), web.delete(PATH, self._clear)]

    async def _add(self, request: web.Request) -> web.Response:
        require_administrator(request, _WHAT)
        described = await read_object(request)
        action = described["action"]
        self._faults.add(_ACTIONS[action.pop("type")](**action), **described["rule"])
        return json_response({}, status=201)

    async def _clear(self, request: web.Request) -> web.Response:
        require_administrator(request, _WHAT)
        self._faults.clear()
        return json_response({})


def _reset(request: web.Request) -> ConnectionResetError:
    """Reset the connection, and return the error that ends the handling of the request."""
    transport = request.transport
    if transport is not None:
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    return ConnectionResetError("the connection was reset on purpose")
