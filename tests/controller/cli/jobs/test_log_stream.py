"""Logs as bytes: merged by time, cut into lines."""

from __future__ import annotations

from collections.abc import AsyncIterator

from trainmaster.controller.cli.jobs.log_stream import lines, merged


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_lines_are_cut_wherever_chunks_end() -> None:
    found = [line async for line in lines(chunks(b"a\nb", b"b\r\n", b"10%\r20%\r", b"30%\n\nend"))]
    assert found == [b"a", b"bb", b"30%", b"", b"end"]


async def test_logs_are_merged_by_time_and_each_stays_in_its_order() -> None:
    first = chunks(b"T1 a\nT4 b\nT3 late\nT9 c\n")
    second = chunks(b"T2 x\n", b"T5 y\nT5 z")
    found = [(name, line) async for name, line in merged({"0": first, "1": second, "2": chunks()})]
    assert found == [
        ("0", b"T1 a"),
        ("1", b"T2 x"),
        ("0", b"T4 b"),
        ("0", b"T3 late"),
        ("1", b"T5 y"),
        ("1", b"T5 z"),
        ("0", b"T9 c"),
    ]
