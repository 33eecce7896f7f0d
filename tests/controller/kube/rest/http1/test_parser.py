"""HTTP/1.1: the parser, and connections."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.controller.kube.rest.http1.connection import Connection
from trainmaster.controller.kube.rest.http1.parser import HEAD_LIMIT, AnswerParser, MalformedAnswer

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
            lines.append(f"content-length:{len(body)} \t")
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
        form = draw(st.sampled_from([b"%x", b"%X", b"00%x", b"%x;name=value", b"%x  ;a"]))
        payload += form % size + b"\r\n" + rest[:size] + b"\r\n"
        rest = rest[size:]
    return payload + draw(st.sampled_from([b"0", b"000;last"])) + b"\r\n" + draw(
        st.sampled_from([b"", b"Trailer: x\r\n", b"A: 1\r\nB: 2\r\n"])
    ) + b"\r\n"  # fmt: skip


def pieces_of(wire: bytes, cuts: list[int]) -> list[bytes]:
    ends = [*sorted({cut % (len(wire) + 1) for cut in cuts}), len(wire)]
    return [wire[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def parse(pieces: list[bytes], *, bodiless: bool = False) -> tuple[AnswerParser, bytes]:
    parser = AnswerParser(bodiless=bodiless)
    return parser, b"".join([parser.feed(piece) for piece in pieces if not parser.complete])


@given(answers(), st.lists(st.integers(0, 2000), max_size=30))
def test_an_answer_is_the_same_however_it_is_cut(sent: Sent, cuts: list[int]) -> None:
    parser, body = parse(pieces_of(sent.wire, cuts))
    assert parser.complete == (not sent.ended_by_close)
    parser.end()
    assert parser.complete
    assert (parser.status, body, parser.reusable) == (sent.status, sent.body, sent.reusable)
    for name, value in sent.fields:
        assert value in parser.headers.getall(name.upper())


@given(answers())
def test_an_answer_that_breaks_off_is_not_complete(sent: Sent) -> None:
    parser, _ = parse([sent.wire[:-1]])
    parser.end()
    assert parser.complete == sent.ended_by_close or not sent.body


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
            parser, body = parse(pieces)
        except MalformedAnswer:
            return "malformed"
        return parser.status, parser.complete, body

    assert outcome(pieces_of(wire, cuts)) == outcome([wire])


@pytest.mark.parametrize(
    "wire",
    [
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
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
        parse([wire])


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body(status: int) -> None:
    parser, body = parse([b"HTTP/1.1 %d x\r\nContent-Length: 5\r\n\r\n" % status])
    assert (parser.complete, parser.reusable, body) == (True, True, b"")


def test_an_answer_to_a_head_has_no_body_whatever_its_length() -> None:
    parser, body = parse([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"], bodiless=True)
    assert (parser.complete, parser.headers["content-length"], body) == (True, "5", b"")


def test_bytes_that_nobody_asked_for_end_the_use_of_a_connection() -> None:
    parser, body = parse([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n"])
    assert (parser.complete, parser.reusable, body) == (True, False, b"ok")


def test_http_1_0_keeps_a_connection_only_if_it_says_so() -> None:
    for kept in (True, False):
        line = b"Connection: Keep-Alive\r\n" if kept else b""
        parser, _ = parse([b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n" + line + b"\r\n"])
        assert (parser.complete, parser.reusable) == (True, kept)


CONTEXT = ssl.create_default_context()
STEPS = ("cancel", "lose", "reset", "garbage", "turn", "resume")


def connected(*, tls: bool, **behaviour: Any) -> Connection:
    socket = MagicMock(asyncio.Transport)
    socket.configure_mock(**{"is_closing.return_value": False, **behaviour})
    connection = Connection(MagicMock(), context=CONTEXT if tls else None, server_hostname="server")
    connection.connection_made(socket)
    return connection


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


@given(steps=st.lists(st.sampled_from(STEPS), max_size=6))
def test_no_failure_of_a_handshake_is_left_to_nobody(steps: list[str]) -> None:
    async def run() -> list[str]:
        connection = connected(tls=True)
        return await complaints_of(connection, connection.shake_hands(), steps)

    assert asyncio.run(run()) == []


@given(steps=st.lists(st.sampled_from(STEPS), max_size=6), size=st.sampled_from([1, 2**20]))
def test_no_failure_of_an_exchange_is_left_to_nobody(steps: list[str], size: int) -> None:
    async def run() -> list[str]:
        connection = connected(tls=False)
        connection.pause_writing()
        return await complaints_of(connection, connection.exchange(bytes(size), where="x", bodiless=False), steps)

    assert asyncio.run(run()) == []


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        ({"is_closing.return_value": True}, ConnectionAbortedError),
        ({"write.side_effect": RuntimeError("the event loop does not write")}, RuntimeError),
    ],
)
async def test_nobody_waits_for_a_handshake_that_has_not_begun(
    behaviour: dict[str, Any], error: type[Exception]
) -> None:
    connection = connected(tls=True, **behaviour)
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    with pytest.raises(error):
        await connection.shake_hands()
    connection.connection_lost(None)
    del connection
    gc.collect(1)
    await asyncio.sleep(0)
    assert complaints == []
