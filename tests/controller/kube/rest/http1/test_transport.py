"""Requests and connections, byte by byte: what is sent when, on which connection, and what breaks one."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import AsyncMock, MagicMock

import pytest
from support.authorities import Authority
from support.commands import eventually
from support.oddrequests import abort, open_connections
from support.virtualtime import settle

from trainmaster.controller.kube.rest.config import ConfigurationError, RestConfig
from trainmaster.controller.kube.rest.errors import NotConnected, TransportError
from trainmaster.controller.kube.rest.http1.connection import Connection
from trainmaster.controller.kube.rest.http1.dialer import Dialer
from trainmaster.controller.kube.rest.http1.transport import HttpTransport, Pool
from trainmaster.controller.kube.rest.transport import IDLE_AT_MOST, Response

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Wire:
    """A server whose connections are served by a test; counts them, and keeps what they got."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0
        self.url = ""
        self.writers: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError):
            pass  # the client has closed the connection
        finally:
            writer.close()


@asynccontextmanager
async def wire(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    serving = Wire(serve)
    listener = await asyncio.start_server(serving.accept, "127.0.0.1", 0, ssl=context)
    serving.url = f"http{'s' if context else ''}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener:
        yield serving
        for writer in serving.writers:
            abort(writer)


async def head_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def always_ok(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await head_of(reader)
        writer.write(OK)


def answering(*answers: bytes) -> Serve:
    """Answer the requests of each connection with these, and close it after the last."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await head_of(reader)
            writer.write(answer)

    return serve


async def get(transport: HttpTransport, path: str = "/", **more: Any) -> bytes:
    response = await send(transport, path=path, **more)
    try:
        return b"".join([chunk async for chunk in response.chunks()])
    finally:
        response.close()


async def send(transport: HttpTransport, method: str = "GET", path: str = "/", **more: Any) -> Response:
    return await transport.send(
        method, path, **{"params": {}, "headers": {}, "body": None, "streaming": False, **more}
    )  # fmt: skip


async def test_a_request_on_the_wire(clock: Any) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await head_of(reader) + await reader.readexactly(4))
        writer.write(OK)

    async with wire(serve) as server:
        config = RestConfig(server=server.url.replace("http://", "http://me:pass%20word@") + "/prefix")
        async with HttpTransport(config, clock=clock) as transport:
            body = {"params": {"a": "b c", "d": "&="}, "headers": {"Accept": "x/y"}, "body": b"body"}
            assert await get(transport, "/api/a%2Fb", method="PATCH", **body) == b"ok"
    assert seen == [
        b"PATCH /prefix/api/a%2Fb?a=b+c&d=%26%3D HTTP/1.1\r\nHost: " + server.url[7:].encode() + b"\r\n"
        b"Authorization: Basic bWU6cGFzcyB3b3Jk\r\nAccept: x/y\r\nContent-Length: 4\r\n\r\nbody"
    ]


@pytest.mark.parametrize(
    "more", [{"path": "/a b"}, {"path": "/a\r\nHost: b"}, {"path": "/ä"}, {"headers": {"A": "b\r\nC: d"}}]
)
async def test_nothing_ends_a_line_of_a_request(clock: Any, more: dict[str, Any]) -> None:
    async with wire(always_ok) as server, HttpTransport(RestConfig(server=server.url), clock=clock) as transport:
        with pytest.raises(ConfigurationError if "headers" in more else ValueError, match="cannot be"):
            await send(transport, **more)
        assert await get(transport) == b"ok"
    assert server.connections == 1


@pytest.mark.guarantee("T-4")
async def test_requests_beyond_the_limit_wait_and_the_oldest_is_next(clock: Any) -> None:
    order: list[bytes] = []
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            order.append((await head_of(reader)).split()[1])
            await go_on.wait()
            writer.write(OK)

    async with (
        wire(serve) as server,
        HttpTransport(RestConfig(server=server.url), clock=clock, connections=1) as transport,
    ):
        waiting = [asyncio.create_task(get(transport, f"/{number}")) for number in range(6)]
        while not order:
            await asyncio.sleep(0)
        waiting[2].cancel()
        go_on.set()
        await asyncio.wait(waiting)
        assert await get(transport, "/last") == b"ok"
    assert order == [b"/0", b"/1", b"/3", b"/4", b"/5", b"/last"]
    assert server.connections == 1


@pytest.mark.guarantee("T-3")
@pytest.mark.parametrize("tls", [False, True])
async def test_a_connection_that_was_closed_while_idle_is_replaced_before_anything_is_sent(
    clock: Any, tmp_path: Path, *, tls: bool
) -> None:
    authority = Authority()
    context = ssl.create_default_context(cadata=authority.pem.decode())
    async with (
        wire(answering(OK), authority.server_context(tmp_path) if tls else None) as server,
        HttpTransport(RestConfig(server=server.url, ssl_context=context), clock=clock) as transport,
    ):
        for number in range(1, 4):
            assert await get(transport) == b"ok"
            while open_connections("request"):
                await asyncio.sleep(0)
            assert server.connections == number


@pytest.mark.guarantee("T-5")
async def test_idle_connections_are_closed_in_time(clock: Any) -> None:
    assert IDLE_AT_MOST < 60
    async with wire(always_ok) as server, HttpTransport(RestConfig(server=server.url), clock=clock) as transport:
        await get(transport)
        clock.step(IDLE_AT_MOST - 1)
        await get(transport)
        assert server.connections == 1
        clock.step(IDLE_AT_MOST)
        await get(transport)
        assert server.connections == 2


@pytest.mark.guarantee("T-5")
async def test_a_burst_leaves_no_idle_connections_behind(clock: Any) -> None:
    async with wire(always_ok) as server, HttpTransport(RestConfig(server=server.url), clock=clock) as transport:
        await asyncio.gather(*[get(transport) for _ in range(5)])
        assert open_connections("request") == 5
        clock.step(IDLE_AT_MOST)
        await eventually(lambda: not open_connections("request"))


async def test_a_cancelled_request_takes_its_connection_with_it(clock: Any) -> None:
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        asked.set()
        assert await reader.read() == b""

    async with wire(serve) as server, HttpTransport(RestConfig(server=server.url), clock=clock) as transport:
        request = asyncio.create_task(get(transport))
        await asked.wait()
        request.cancel()
        await asyncio.wait([request])
        await eventually(lambda: not open_connections("request"))


async def test_a_tls_connection_that_asyncio_is_closing_is_aborted(clock: Any, tmp_path: Path) -> None:
    """As when its opening is cancelled: it waits for no farewell of a server that may be gone."""
    authority = Authority()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    async with wire(serve, authority.server_context(tmp_path)) as server:
        context = ssl.create_default_context(cadata=authority.pem.decode())
        dialer = Dialer(RestConfig(server=server.url, ssl_context=context), clock=clock, timeout=10.0)
        connection = await dialer.dial("GET /")
        await eventually(lambda: server.connections)
        assert connection.channel is not None
        connected = connection.channel.get_extra_info("socket")
        server.writers[0].transport.pause_reading()  # type: ignore[attr-defined]
        connection.channel.close()
        connection.abort()
        await settle()
        assert connected.fileno() == -1


async def test_an_answer_before_the_end_of_a_large_request_ends_it(clock: Any) -> None:
    """For instance 413: nobody waits for a server that reads no more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await asyncio.sleep(3600)

    async with wire(serve) as server, HttpTransport(RestConfig(server=server.url), clock=clock) as transport:
        response = await send(transport, "PUT", body=b"x" * 2**24)
        assert [chunk async for chunk in response.chunks()] == [b"no"]
        assert response.status == 413
        await eventually(lambda: not open_connections("request"))


@pytest.mark.parametrize("tls", [False, True])
async def test_interim_answers_do_not_end_a_large_request(clock: Any, tmp_path: Path, *, tls: bool) -> None:
    """Nor the back-pressure: after each of them the server still takes its time to read."""
    authority, go_on = Authority(), asyncio.Event()
    size, pieces = 2**24, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        for _ in range(3):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
            await settle(1000)
        await go_on.wait()
        assert await reader.readexactly(size) == bytes(size)
        writer.write(OK)

    def guard() -> None:
        nonlocal pieces
        pieces += 1

    async with wire(serve, authority.server_context(tmp_path) if tls else None) as server:
        context = ssl.create_default_context(cadata=authority.pem.decode())
        config = RestConfig(server=server.url, ssl_context=context)
        async with HttpTransport(config, clock=clock) as transport:
            sent = asyncio.create_task(get(transport, method="PUT", body=bytes(size), guard=guard))
            await settle(10_000)
            assert 1 < pieces < 48
            go_on.set()
            await eventually(sent.done)
            assert await sent == b"ok"


@pytest.mark.parametrize("tls", [False, True])
async def test_what_nobody_reads_stays_with_the_server(clock: Any, tmp_path: Path, *, tls: bool) -> None:
    total, written = 2**26, 0
    authority = Authority()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while written < total:
            writer.write(b"x" * 2**16)
            await writer.drain()
            written += 2**16

    async with wire(serve, authority.server_context(tmp_path) if tls else None) as server:
        context = ssl.create_default_context(cadata=authority.pem.decode())
        config = RestConfig(server=server.url, ssl_context=context)
        async with HttpTransport(config, clock=clock) as transport:
            response = await send(transport, streaming=True)
            before = -1
            while before != written:
                before = written
                await settle(1000)
            assert written < total / 2
            assert sum([len(chunk) async for chunk in response.chunks()]) == total


async def test_a_body_up_to_the_end_of_the_connection(clock: Any) -> None:
    serve = answering(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    async with wire(serve) as server, HttpTransport(RestConfig(server=server.url), clock=clock) as transport:
        assert await get(transport) == b"all of it"


async def test_a_head_has_no_body(clock: Any) -> None:
    serve = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", OK)
    async with wire(serve) as server, HttpTransport(RestConfig(server=server.url), clock=clock) as transport:
        assert await get(transport, method="HEAD") == b""
        assert await get(transport) == b"ok"
    assert server.connections == 1


async def test_a_server_of_something_else(clock: Any) -> None:
    serve = answering(b"SSH-2.0-OpenSSH_9.2\r\n")
    async with wire(serve) as server, HttpTransport(RestConfig(server=server.url), clock=clock) as transport:
        with pytest.raises(TransportError, match=r"the answer is not HTTP/1\.1 .*: it begins with b'SSH-2\.0"):
            await get(transport)


async def test_a_malformed_chunk_breaks_the_stream(clock: Any) -> None:
    serve = answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzoo\r\n")
    async with wire(serve) as server, HttpTransport(RestConfig(server=server.url), clock=clock) as transport:
        with pytest.raises(TransportError, match="Invalid character in chunk size"):
            await get(transport)
        await eventually(lambda: not open_connections("request"))


async def test_every_address_of_a_name_is_tried(clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with wire(always_ok) as server:
        port = int(server.url.rpartition(":")[2])
        with socket.socket() as unused:
            unused.bind(("127.0.0.2", 0))
            refusing = unused.getsockname()

        async def resolve(*_: object, **__: object) -> list[Any]:
            stream = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            return [(*stream, refusing), (*stream, ("127.0.0.1", port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        config = RestConfig(server=f"http://api.example.com:{port}")
        async with HttpTransport(config, clock=clock) as transport:
            assert await get(transport) == b"ok"


async def test_leaving_fails_what_is_under_way(clock: Any) -> None:
    """Nobody waits for an answer that cannot come any more."""
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        asked.set()
        await asyncio.sleep(3600)

    async with wire(serve) as server:
        async with HttpTransport(RestConfig(server=server.url), clock=clock, connections=1) as transport:
            sent = asyncio.create_task(get(transport))
            waiting = asyncio.create_task(get(transport))
            await asked.wait()
        with pytest.raises(TransportError, match="the client was closed before the answer came"):
            await sent
        for late in (waiting, get(transport)):
            with pytest.raises(NotConnected, match="the client is not open"):
                await late


async def test_a_connection_that_is_lost_while_it_is_taken_was_never_counted(clock: Any) -> None:
    channel = MagicMock(asyncio.Transport)
    channel.is_closing.return_value = True
    connection = Connection(context=None)
    connection.connection_made(channel)
    dialer = MagicMock(dial=AsyncMock(return_value=connection))
    before, pool = open_connections("request"), Pool("request", dialer, clock=clock, limit=1, idle_at_most=1.0)
    pool.is_open = True
    assert await pool.take("GET /") is connection
    connection.connection_lost(None)
    assert open_connections("request") == before
