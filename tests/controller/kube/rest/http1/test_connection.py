"""Answers as they arrive on a connection, byte by byte, and what becomes of the connection."""

import asyncio
import dataclasses
import gc
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from support.virtualtime import settle

from trainmaster.controller.kube.rest.errors import StreamBroken
from trainmaster.controller.kube.rest.http1.connection import HEAD_LIMIT, Connection, MalformedAnswer

TOKENS = st.text("abcdefgXYZ-0123456789!#", min_size=1, max_size=12)
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=20)
FIELDS = st.lists(
    st.tuples(TOKENS, VALUES).filter(
        lambda field: field[0].lower() not in ("content-length", "transfer-encoding", "connection")
    ),
    max_size=6,
)


@dataclass(frozen=True, slots=True)
class Sent:
    """An answer, and what it is on the wire."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes
    wire: bytes
    reusable: bool
    ended_by_close: bool = False


@st.composite
def answers(draw: st.DrawFn) -> Sent:
    status = draw(st.sampled_from([200, 201, 404, 409, 500]))
    body = draw(st.binary(max_size=300))
    fields = draw(FIELDS)
    close = draw(st.booleans())
    lines = [f"{name}: {value}" for name, value in fields] + (["Connection: Close"] if close else [])
    framing = draw(st.sampled_from(["length", "chunks", "close"]))
    match framing:
        case "length":
            lines.append(f"content-length:{len(body)} ")
            payload = body
        case "chunks":
            lines.append("Transfer-Encoding: chunked")
            payload = draw(chunked(body))
        case _:
            payload = body
    interim = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n"]))
    head = "\r\n".join([f"HTTP/1.1 {status} Some Reason", *lines])
    wire = interim + head.encode() + b"\r\n\r\n" + payload
    return Sent(status, fields, body, wire, not close and framing != "close", ended_by_close=framing == "close")


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    payload, rest = b"", body
    while rest:
        size = draw(st.integers(1, len(rest)))
        form = draw(st.sampled_from([b"%x", b"%X", b"00%x", b"%x;name=value", b"%x;a"]))
        payload += form % size + b"\r\n" + rest[:size] + b"\r\n"
        rest = rest[size:]
    return payload + draw(st.sampled_from([b"0", b"000;last"])) + b"\r\n" + draw(
        st.sampled_from([b"", b"Trailer: x\r\n", b"A: 1\r\nB: 2\r\n"])
    ) + b"\r\n"  # fmt: skip


def pieces_of(wire: bytes, cuts: list[int]) -> list[bytes]:
    ends = [*sorted({cut % (len(wire) + 1) for cut in cuts}), len(wire)]
    return [wire[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True, slots=True)
class Got:
    """What a client has got of an answer when the server has closed the connection."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool
    reusable: bool
    """Whether the connection would have carried another request."""


def receive(pieces: list[bytes], *, bodiless: bool = False) -> Got:
    """Send a request on a connection, on which these bytes come."""

    async def run() -> Got:
        connection, pool = connected()
        sent = asyncio.ensure_future(_read(connection, bodiless=bodiless))
        for piece in pieces:
            await settle()
            if not pool.given_back.called:
                connection.data_received(piece)
        await settle()
        reusable = pool.given_back.called and pool.given_back.call_args.kwargs["reusable"]
        connection.connection_lost(None)
        return dataclasses.replace(await sent, reusable=reusable)

    return asyncio.run(run())


async def _read(connection: Connection, *, bodiless: bool) -> Got:
    exchange, body = await connection.exchange(b"request", where="GET /", bodiless=bodiless), b""
    try:
        async for chunk in exchange.chunks():
            body += chunk
    except StreamBroken as error:
        if isinstance(error.__cause__, MalformedAnswer):
            raise error.__cause__ from None
        return Got(exchange.status, exchange.headers, body, complete=False, reusable=False)
    return Got(exchange.status, exchange.headers, body, complete=True, reusable=False)


def connected() -> tuple[Connection, MagicMock]:
    pool, socket = MagicMock(), MagicMock(asyncio.Transport)
    socket.is_closing.return_value = False
    connection = Connection(context=None)
    connection.connection_made(socket)
    connection.owner = pool
    return connection, pool


@given(answers(), st.lists(st.integers(0, 2000), max_size=30))
def test_an_answer_is_the_same_however_it_is_cut(sent: Sent, cuts: list[int]) -> None:
    got = receive(pieces_of(sent.wire, cuts))
    assert (got.status, got.body, got.complete, got.reusable) == (sent.status, sent.body, True, sent.reusable)
    headers = CIMultiDict(got.headers.items())
    for name, value in sent.fields:
        assert value in headers.getall(name.upper())


@given(answers())
def test_an_answer_that_breaks_off_is_not_complete(sent: Sent) -> None:
    try:
        got = receive([sent.wire[:-1]])
    except EOFError:
        return  # not even its head has arrived
    assert got.complete == sent.ended_by_close


@given(
    st.one_of(
        st.binary(max_size=200),
        st.builds(lambda head, rest: head + rest, st.sampled_from([
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: ",
        ]), st.text("0123456789abcdef;: \r\nHTP/\0\x80").map(str.encode)),
    ),
    st.lists(st.integers(0, 200), max_size=10),
)  # fmt: skip
def test_garbage_is_malformed_or_an_answer_however_it_is_cut(wire: bytes, cuts: list[int]) -> None:
    """Whether it is malformed may be found out earlier or later; what comes of it is the same."""

    def outcome(pieces: list[bytes]) -> object:
        try:
            got = receive(pieces)
        except (EOFError, MalformedAnswer) as error:
            return type(error)
        return got.status, got.complete, got.body

    assert outcome(pieces_of(wire, cuts)) == outcome([wire])


@pytest.mark.parametrize(
    "wire",
    [
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: 1\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: 1\nB: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdefg\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: b\r\n" * HEAD_LIMIT,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * HEAD_LIMIT,
    ],
)
def test_what_is_no_answer_is_refused(wire: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        receive([wire])


@pytest.mark.parametrize(
    ("wire", "bodiless", "reusable", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding:  chunked \r\n\r\n2\r\nok\r\n0\r\n\r\n", False, True, b"ok"),
        (b"HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n", False, True, b""),
        (b"HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n", False, True, b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", True, True, b""),  # to a HEAD
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False, False, b""),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: Keep-Alive\r\n\r\n", False, True, b""),
    ],
)
def test_where_an_answer_ends(wire: bytes, *, bodiless: bool, reusable: bool, body: bytes) -> None:
    got = receive([wire], bodiless=bodiless)
    assert (got.complete, got.reusable, got.body) == (True, reusable, body)


def test_headers_that_are_not_utf_8_can_be_printed() -> None:
    got = receive([b"HTTP/1.1 302 x\r\nContent-Length: 0\r\nLocation: /\xff\r\n\r\n"])
    assert got.headers["Location"] == "/\ufffd"


@pytest.mark.parametrize(
    "surplus",
    [
        b"HTTP/1.1 404 No\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nx",
        b"H",
        b"garbage",
    ],
)
@pytest.mark.parametrize("bodiless", [False, True])
def test_bytes_that_no_request_asked_for_end_the_use_of_a_connection(surplus: bytes, *, bodiless: bool) -> None:
    body = b"" if bodiless else b"ok"
    got = receive([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + body + surplus], bodiless=bodiless)
    assert (got.status, got.complete, got.reusable, got.body) == (200, True, False, body)


def test_surplus_that_is_read_later_than_the_answer_ends_the_use_of_a_connection() -> None:
    """It would be taken for the answer to the next request."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %06d\r\n\r\n"
    size = 2**18 - len(head % 0)
    got = receive([head % size + bytes(size) + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
    assert (len(got.body), got.complete, got.reusable) == (size, True, False)


STEPS = ("cancel", "lose", "reset", "garbage", "turn", "resume")


async def test_an_answer_that_came_before_a_reset_is_read() -> None:
    """A server that refuses a large request closes the connection before it has read all of it."""
    connection, _ = connected()
    sent = asyncio.ensure_future(connection.exchange(bytes(2**20), where="GET /", bodiless=False))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
    connection.connection_lost(ConnectionResetError("reset"))
    exchange = await sent
    assert (exchange.status, [chunk async for chunk in exchange.chunks()]) == (413, [b"no"])


async def test_a_reset_is_no_end_of_an_answer_without_a_length() -> None:
    connection, _ = connected()
    sent = asyncio.ensure_future(connection.exchange(b"request", where="GET /", bodiless=False))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nnot all")
    connection.connection_lost(ConnectionResetError("reset"))
    chunks = (await sent).chunks()
    assert await anext(chunks) == b"not all"
    with pytest.raises(StreamBroken, match="reset"):
        await anext(chunks)


async def complaints_of(connection: Connection, waiting: Awaitable[Any], steps: list[str]) -> list[str]:
    """Return what the event loop has to complain about after these steps."""
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    task = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    take: dict[str, Callable[[], object]] = {
        "cancel": task.cancel,
        "lose": lambda: connection.connection_lost(None),
        "reset": lambda: connection.connection_lost(ConnectionResetError("reset")),
        "garbage": lambda: connection.data_received(b"garbage"),
        "resume": connection.resume_writing,
    }
    for step in steps:
        if step == "turn":
            await asyncio.sleep(0)
        else:
            take[step]()
    connection.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    assert task.done()
    _ = task.cancelled() or task.exception()
    del task, take, waiting
    gc.collect(1)  # what this has made is young; all of a process that has run other tests takes a second each time
    await asyncio.sleep(0)
    return complaints


@given(steps=st.lists(st.sampled_from(STEPS), max_size=6), size=st.sampled_from([1, 2**20]))
def test_no_failure_of_an_exchange_is_left_to_nobody(steps: list[str], size: int) -> None:
    async def run() -> list[str]:
        connection, _ = connected()
        connection.pause_writing()
        return await complaints_of(connection, connection.exchange(bytes(size), where="x", bodiless=False), steps)

    assert asyncio.run(run()) == []
