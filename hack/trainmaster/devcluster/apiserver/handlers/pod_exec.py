"""`pods/<name>/exec`: a program in a running container, with its streams on one WebSocket.

The protocols are those that kubectl and the Kubernetes clients speak, `v5.channel.k8s.io` and `v4.channel.k8s.io`
(KEP-4006): the first byte of each message is its channel. SPDY, which clients before kubectl 1.31 speak, is 501.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import orjson
from aiohttp import WSMsgType, hdrs, web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.handlers.pod_log import choose_container
from trainmaster.devcluster.apiserver.http.query import read_boolean
from trainmaster.devcluster.apiserver.http.responsewriters import start_response
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.runtime.jsontree import JsonObject

_STDIN, STDOUT, STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_WITH_CLOSE: Final = "v5.channel.k8s.io"
_PROTOCOLS: Final = (_WITH_CLOSE, "v4.channel.k8s.io")


class Execution(Protocol):
    """A program that runs in a container."""

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Yield what it prints, each piece with `STDOUT` or `STDERR`, until it has ended."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its standard input, when it has room."""

    async def close_input(self) -> None:
        """End its standard input."""

    def resize(self, width: int, height: int) -> None:
        """Set the size of its terminal, in characters."""

    @property
    def code(self) -> int | None:
        """Its exit code when it has ended; None if it could not be started or nobody knows."""

    @property
    def error(self) -> str:
        """Why there is no exit code."""


class ContainerExecutor(Protocol):
    """Runs programs in containers; the kubelet is one."""

    def execute(
        self, pod: JsonObject, container: str, argv: list[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[Execution]:
        """Run a program while the block runs.

        Raises:
            StatusError: The container does not run.
        """
        ...


async def serve_exec(
    request: web.Request, api: Api, executor: ContainerExecutor | None, *, namespace: str | None, name: str
) -> web.StreamResponse:
    """Handle a request to run a program in a container."""
    argv = request.query.getall("command", [])
    if not argv:
        raise errors.bad_request("you must specify at least 1 command for the pod")
    pod = api.get(PODS, namespace, name)
    container = choose_container(pod, request.query.get("container", ""))
    if executor is None:
        raise errors.not_implemented("exec without a kubelet")
    offered = [each.strip() for each in request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, "").split(",")]
    if request.headers.get(hdrs.UPGRADE, "").lower() != "websocket" or not {*offered} & {*_PROTOCOLS}:
        raise errors.not_implemented(f"exec by anything but a WebSocket with {' or '.join(_PROTOCOLS)}")
    stdin, tty = read_boolean(request.query, "stdin"), read_boolean(request.query, "tty")
    async with executor.execute(pod, container, argv, stdin=stdin, tty=tty) as execution:
        socket = web.WebSocketResponse(protocols=_PROTOCOLS, max_msg_size=0)
        await start_response(request, socket)
        reading = asyncio.create_task(_read(socket, execution))
        printing = asyncio.create_task(_print(socket, execution))
        try:
            # A client that goes away ends the program; one that has nothing more to say does not.
            await asyncio.wait([reading, printing], return_when=asyncio.FIRST_COMPLETED)
            if printing.done() and not socket.closed:
                printing.result()
                status = orjson.dumps(_outcome(execution, argv))
                await socket.send_bytes(bytes([_STATUS]) + status)
                await socket.close()
        except ConnectionResetError:
            pass  # the client has gone
        finally:
            reading.cancel()
            printing.cancel()
            await asyncio.gather(reading, printing, return_exceptions=True)
    return socket


async def _read(socket: web.WebSocketResponse, execution: Execution) -> None:
    """Pass on what the client sends until it closes the connection."""
    async for message in socket:
        if message.type not in {WSMsgType.BINARY, WSMsgType.TEXT} or not message.data:
            continue
        data = message.data if isinstance(message.data, bytes) else message.data.encode()
        channel, content = data[0], data[1:]
        if channel == _STDIN and content:
            await execution.write(content)
        elif channel == _RESIZE:
            _resize(execution, content)
        elif channel == _CLOSE and content == bytes([_STDIN]) and socket.ws_protocol == _WITH_CLOSE:
            await execution.close_input()


def _resize(execution: Execution, content: bytes) -> None:
    try:
        size = orjson.loads(content)
        execution.resize(int(size["Width"]), int(size["Height"]))
    except (ValueError, TypeError, KeyError):
        return  # no size


async def _print(socket: web.WebSocketResponse, execution: Execution) -> None:
    async for channel, data in execution.output():
        await socket.send_bytes(bytes([channel]) + data)


def _outcome(execution: Execution, argv: list[str]) -> JsonObject:
    """Tell how a program ended, as a Status that clients take the exit code from."""
    if execution.code == 0:
        return {"metadata": {}, "status": "Success"}
    if execution.code is None:
        message = f"error executing command in container: {execution.error}"
        return {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
    message = f"command terminated with non-zero exit code: error executing command {argv}, exit code {execution.code}"
    causes = [{"reason": "ExitCode", "message": str(execution.code)}]
    failure = {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode"}
    return {**failure, "details": {"causes": causes}}
