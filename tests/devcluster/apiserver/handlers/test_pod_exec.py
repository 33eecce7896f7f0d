"""The exec subresource of pods over a WebSocket, as kubectl and the Kubernetes clients speak it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support.devcluster.envtest import Environment, start_environment

from trainmaster.devcluster.apiserver.errors import bad_request
from trainmaster.devcluster.apiserver.handlers.pod_exec import STDERR, STDOUT
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.runtime.jsontree import JsonObject

PATH = "/api/v1/namespaces/default/pods/p/exec"
V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"


class Program:
    """Prints what it reads in capitals, and ends with its input."""

    def __init__(self, argv: list[str]) -> None:
        self.code = int(argv[0]) if argv[0].isdigit() else None
        self.error = "no such program"
        self.size: tuple[int, int] | None = None
        self._typed: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        yield STDERR, b"ready"
        while (data := await self._typed.get()) is not None:
            yield STDOUT, data.upper()

    async def write(self, data: bytes) -> None:
        self._typed.put_nowait(data)

    async def close_input(self) -> None:
        self._typed.put_nowait(None)

    def resize(self, width: int, height: int) -> None:
        self.size = width, height


class Node:
    """Runs programs in the container `c` alone."""

    def __init__(self) -> None:
        self.running: list[Program] = []
        self.asked: dict[str, Any] = {}
        self.idle = asyncio.Event()

    @asynccontextmanager
    async def execute(self, pod: JsonObject, container: str, argv: list[str], **options: Any) -> AsyncIterator[Program]:
        if container != "c":
            raise bad_request(f"container {container} does not run")
        self.asked = {"argv": argv, **options}
        self.running.append(Program(argv))
        try:
            yield self.running[-1]
        finally:
            self.idle.set()


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
async def server(tmp_path: Path, node: Node) -> AsyncIterator[Environment]:
    async with start_environment(tmp_path, executor=node) as served:
        spec = {"nodeName": "n", "containers": [{"name": name, "image": "i"} for name in ("c", "ended")]}
        await served.api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default")
        yield served


@asynccontextmanager
async def connected(
    server: Environment, *argv: str, protocol: str = V5, **query: str
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    params = [*(("command", each) for each in argv), *{"container": "c", **query}.items()]
    async with server.session() as session, session.ws_connect(PATH, params=params, protocols=[protocol]) as socket:
        assert socket.protocol == protocol
        yield socket


async def test_streams_and_the_exit_code(server: Environment, node: Node) -> None:
    async with connected(server, "0", "--flag", stdin="true", tty="false") as socket:
        assert await socket.receive_bytes() == b"\x02ready"
        await socket.send_bytes(b"\x00")  # clients open a channel by an empty message
        await socket.send_bytes(b"\x00hello")
        assert await socket.receive_bytes() == b"\x01HELLO"
        await socket.send_bytes(b'\x04{"Width": 80, "Height": 24}')
        await socket.send_bytes(b"\x04{}")
        await socket.send_bytes(b"\xff\x00")
        status = await socket.receive_bytes()
        assert (status[0], json.loads(status[1:])) == (3, {"metadata": {}, "status": "Success"})
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
    assert node.asked == {"argv": ["0", "--flag"], "stdin": True, "tty": False}
    assert node.running[0].size == (80, 24)


@pytest.mark.parametrize(
    ("program", "reason", "causes"),
    [("7", "NonZeroExitCode", [{"reason": "ExitCode", "message": "7"}]), ("nothing", "InternalError", None)],
)
async def test_how_a_program_failed(
    server: Environment, node: Node, program: str, reason: str, causes: list[JsonObject] | None
) -> None:
    async with connected(server, program) as socket:
        await socket.receive_bytes()
        await node.running[0].close_input()
        status = json.loads((await socket.receive_bytes())[1:])
    assert (status["status"], status["reason"]) == ("Failure", reason)
    assert status.get("details", {}).get("causes") == causes


async def test_the_older_protocol_cannot_end_the_input(server: Environment, node: Node) -> None:
    async with connected(server, "0", protocol=V4) as socket:
        await socket.receive_bytes()
        await socket.send_bytes(b"\xff\x00")
        await socket.send_bytes(b"\x00on")
        assert await socket.receive_bytes() == b"\x01ON"


async def test_a_client_that_goes_away_ends_the_program(server: Environment, node: Node) -> None:
    async with connected(server, "0") as socket:
        await socket.receive_bytes()
    await node.idle.wait()


@pytest.mark.parametrize(
    ("query", "upgrade", "code", "text"),
    [
        ({"container": "c"}, V5, 400, "you must specify at least 1 command"),
        ({"command": "ls", "container": "x"}, V5, 400, "container x is not valid for pod p"),
        ({"command": "ls"}, V5, 400, "choose one of: [c ended]"),
        ({"command": "ls", "container": "ended"}, V5, 400, "container ended does not run"),
        ({"command": "ls", "container": "c"}, "", 501, "exec by anything but a WebSocket"),
        ({"command": "ls", "container": "c"}, "base64.channel.k8s.io", 501, "exec by anything but a WebSocket"),
    ],
)
async def test_refusals(server: Environment, query: dict[str, str], upgrade: str, code: int, text: str) -> None:
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": upgrade} if upgrade else {}
    headers["Authorization"] = f"Bearer {server.token}"
    async with server.session() as session, session.get(PATH, params=query, headers=headers) as answer:
        assert answer.status == code
        assert text in (await answer.json())["message"]
