"""From bytes to events, whatever the bytes."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.rest.errors import (
    ApiError,
    Gone,
    MalformedResponse,
    ResponseTooLarge,
    StreamBroken,
    StreamSilent,
)
from trainmaster.controller.kube.rest.watch import InactivityTimer, LineSplitter, WatchEvent, WatchStream

FRAME = {"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": "a", "resourceVersion": "1"}}}


async def read(*chunks: bytes, line_limit: int = 2**20) -> list[WatchEvent]:
    async def source() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    stream = WatchStream(source(), clock=VirtualClock(), line_limit=line_limit)
    return [event async for event in stream]


@pytest.mark.guarantee("P-3")
@given(
    lines=st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=8),
    cuts=st.lists(st.integers(0, 300), max_size=12),
)
def test_lines_survive_any_cut_into_chunks(lines: list[bytes], cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    splitter = LineSplitter(limit=1000)
    assert [line for start, end in pairwise(edges) for line in splitter.feed(data[start:end])] == lines
    assert splitter.rest() == b""


@pytest.mark.guarantee("P-3")
async def test_a_frame_larger_than_four_mebibytes_is_read() -> None:
    """Where line-based readers of other clients give up."""
    frame = {"type": "ADDED", "object": {"kind": "Pod", "blob": "x" * (5 * 2**20)}}
    data = orjson.dumps(frame) + b"\n"
    chunks = [data[start : start + 65536] for start in range(0, len(data), 65536)]
    (event,) = await read(*chunks, line_limit=2**23)
    assert event.object == frame["object"]


@pytest.mark.guarantee("P-3")
async def test_an_endless_line_is_refused() -> None:
    with pytest.raises(ResponseTooLarge, match="1000 bytes"):
        await read(b"x" * 600, b"x" * 600, line_limit=1000)


@pytest.mark.guarantee("P-7")
async def test_blank_lines_are_no_events() -> None:
    (event,) = await read(b"\n\r\n" + orjson.dumps(FRAME) + b"\n\n")
    assert event[:2] == ("ADDED", FRAME["object"])
    assert await read(orjson.dumps(FRAME)) == [event], "the last frame needs no newline"


async def test_stream_cut_inside_a_frame_is_broken() -> None:
    with pytest.raises(StreamBroken, match="inside a frame"):
        await read(orjson.dumps(FRAME) + b"\n" + orjson.dumps(FRAME)[:20])


@pytest.mark.guarantee("P-8")
@pytest.mark.parametrize(
    "line", [b"not json", b"[]", b'{"type":"ADDED"}', b'{"type":"NEW","object":{}}', b'{"type":"ADDED","object":null}']
)
async def test_a_malformed_frame_is_an_error(line: bytes) -> None:
    with pytest.raises(MalformedResponse):
        await read(line + b"\n")


@pytest.mark.guarantee("R-28")
async def test_an_error_frame_raises_what_it_says() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (5)"}
    with pytest.raises(Gone, match="too old"):
        await read(orjson.dumps({"type": "ERROR", "object": status}) + b"\n")


@pytest.mark.guarantee("P-8")
async def test_an_error_frame_without_code_is_still_an_error() -> None:
    with pytest.raises(ApiError) as caught:
        await read(b'{"type":"ERROR","object":{"kind":"Status"}}\n')
    assert caught.value.status == 500
    with pytest.raises(Gone):
        await read(b'{"type":"ERROR","object":{"kind":"Status","reason":"Expired"}}\n')


@pytest.mark.guarantee("R-32", "P-5")
async def test_a_silent_stream_is_given_up() -> None:
    """Half-dead connections look like quiet watches; every chunk starts the count anew."""
    clock = VirtualClock()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()

    async def source() -> AsyncIterator[bytes]:
        while True:
            yield await chunks.get()

    async def consume() -> None:
        async for event in WatchStream(source(), clock=clock, inactivity_limit=70):
            seen.append(event)  # noqa: PERF401 - looked at before the stream ends

    seen: list[WatchEvent] = []
    reading = asyncio.create_task(consume())
    await clock.advance(69)
    chunks.put_nowait(orjson.dumps(FRAME) + b"\n")
    await clock.advance(69)
    assert len(seen) == 1
    assert not reading.done()
    await clock.advance(2)
    with pytest.raises(StreamSilent, match="70 s"):
        await reading


async def test_whoever_cancels_a_reader_is_not_told_of_silence() -> None:
    clock = VirtualClock()
    waiting = asyncio.create_task(InactivityTimer(clock, 70).wait(asyncio.sleep(3600)))
    await clock.advance(10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.guarantee("R-32")
async def test_each_wait_has_the_whole_limit_and_work_between_them_does_not_count() -> None:
    clock = VirtualClock()
    timer = InactivityTimer(clock, 70)
    for _ in range(3):
        assert await timer.wait(asyncio.sleep(0, "chunk")) == "chunk"
        await clock.advance(100)
    waiting = asyncio.create_task(timer.wait(asyncio.sleep(3600)))
    await clock.advance(69.5)
    assert not waiting.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await waiting
    timer.close()
