"""Faults over HTTP: carrying out what `faults` decides, and the control API for tests in other processes.

- Requests for resources meet faults after they were let in, and before anything else; the control API never does.
- Without rules a request costs one test of a flag, and a watch nothing.

The control API is there only if its routes were given to the server, and for administrators only:

    GET    /trainmaster.dev/faults         all rules, with their counters
    POST   /trainmaster.dev/faults         add one: {"rule": {"verb": "get"}, "action": {"type": "delay", "seconds": 1}}
    GET    /trainmaster.dev/faults/<id>    one rule
    DELETE /trainmaster.dev/faults[/<id>]  remove one, or all
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import partial

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from support.devcluster.faults import (
    Delay,
    ExpireWatch,
    Fault,
    FaultInvalid,
    FaultRequest,
    Faults,
    Refuse,
    Reset,
    StallWatch,
    TruncateFrame,
)

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.filters.authorization import require_administrator
from trainmaster.devcluster.apiserver.handlers.watch import FRAME_WRAPPER, FrameWrapper, FrameWriter
from trainmaster.devcluster.apiserver.http.bodies import read_object
from trainmaster.devcluster.apiserver.http.query import read_boolean
from trainmaster.devcluster.apiserver.http.request_info import request_info_of, verb_of
from trainmaster.devcluster.apiserver.http.responsewriters import json_response

PATH = "/trainmaster.dev/faults"

_WHAT = "inject faults"

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
                case _:
                    wrapper: FrameWrapper = partial(_faulty, request, fault)
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
            group=info.group,
            resource=info.resource,
            subresource=info.subresource or "",
            namespace=info.namespace or "",
            name=info.name or "",
            user_agent=request.headers.get("User-Agent", ""),
        )


async def _faulty(
    request: web.Request, fault: Fault, response: web.StreamResponse, end: Callable[[], None]
) -> FrameWriter:
    """Return where the frames of a watch go on which a fault lies; `end` ends the watch."""
    writer = _FaultyWriter(request, response, fault, end)
    await writer.begin()
    return writer


class _FaultyWriter:
    """The frames of a watch on which a fault lies."""

    def __init__(
        self, request: web.Request, response: web.StreamResponse, fault: Fault, end: Callable[[], None]
    ) -> None:
        self._request = request
        self._response = response
        self._fault = fault
        self._action = fault.action
        self._end = end
        self._left: int = getattr(fault.action, "after", 0)
        self._done = False

    async def begin(self) -> None:
        """Strike at once if no frame shall come before."""
        if not self._left and not isinstance(self._action, TruncateFrame):
            await self._strike(b"")

    async def write(self, data: bytes) -> None:
        """Send frames, or what is to become of them."""
        for frame in data.splitlines(keepends=True):
            await self._write(frame)

    async def _write(self, data: bytes) -> None:
        if self._done:
            return
        if self._fault.removed.is_set():
            await self._response.write(data)
            return
        if self._left:
            self._left -= 1
            await self._response.write(data)
            if self._left or isinstance(self._action, TruncateFrame):
                return
        await self._strike(data)

    async def _strike(self, data: bytes) -> None:
        self._done = True
        match self._action:
            case TruncateFrame():
                await self._response.write(data[: len(data) // 2])
            case StallWatch():
                self._request[_STALLED_BY] = self._fault
                self._fault.on_removal(self._end)
                return
            case ExpireWatch():
                status = orjson.dumps(errors.expired("The resourceVersion for the provided watch is too old.").status())
                await self._response.write(b'{"type":"ERROR","object":%s}\n' % status)
        self._end()


class FaultControl:
    """The control API."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get(PATH, self._list),
            web.post(PATH, self._add),
            web.delete(PATH, self._clear),
            web.get(PATH + "/{id}", self._show),
            web.delete(PATH + "/{id}", self._remove),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        require_administrator(request, _WHAT)
        return json_response({"items": [fault.described() for fault in self._faults.all()]})

    async def _add(self, request: web.Request) -> web.Response:
        require_administrator(request, _WHAT)
        try:
            fault = self._faults.add_described(await read_object(request))
        except FaultInvalid as error:
            raise errors.bad_request(str(error)) from error
        return json_response(fault.described(), status=201)

    async def _clear(self, request: web.Request) -> web.Response:
        require_administrator(request, _WHAT)
        self._faults.clear()
        return json_response({"items": []})

    async def _show(self, request: web.Request) -> web.Response:
        return json_response(self._find(request).described())

    async def _remove(self, request: web.Request) -> web.Response:
        fault = self._find(request)
        fault.remove()
        return json_response(fault.described())

    def _find(self, request: web.Request) -> Fault:
        require_administrator(request, _WHAT)
        fault = self._faults.find(request.match_info["id"])
        if fault is None:
            raise errors.StatusError(404, "NotFound", f"there is no fault {request.match_info['id']}; list them all")
        return fault


def _reset(request: web.Request) -> ConnectionResetError:
    """Reset the connection, and return the error that ends the handling of the request."""
    transport = request.transport
    if transport is not None:
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    return ConnectionResetError("the connection was reset on purpose")
