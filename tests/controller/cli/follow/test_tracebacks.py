"""Tracebacks that repeat are printed once."""

from __future__ import annotations

import pytest

from trainmaster.controller.cli.follow.tracebacks import Tracebacks

BLOCK = ["Traceback (most recent call last):", '  File "train.py", line 11, in <module>', "    barrier()"]


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "[default0]:[rank0]: "])
def test_a_traceback_is_printed_in_full_once(prefix: str) -> None:
    tracebacks = Tracebacks()
    first = [prefix + line for line in ("starting", *BLOCK, "RuntimeError: peer 1234", "bye")]
    assert tracebacks.shorten(first) == first
    again = [prefix + line for line in ("starting", *BLOCK, "RuntimeError: peer 5678", "bye")]
    assert tracebacks.shorten(again) == [
        f"{prefix}starting",
        f"[3 lines of a traceback as before] {prefix}RuntimeError: peer 5678",
        f"{prefix}bye",
    ]


def test_another_traceback_is_printed_in_full_and_what_never_ends_is_released() -> None:
    tracebacks = Tracebacks()
    tracebacks.shorten([*BLOCK, "RuntimeError: a"])
    other = [BLOCK[0], '  File "train.py", line 12, in <module>', "    loss()", "ValueError: NaN"]
    assert tracebacks.shorten(other[:2]) == []
    assert tracebacks.is_holding
    assert tracebacks.shorten(other[2:]) == other
    assert not tracebacks.is_holding
    assert tracebacks.shorten(["before", *BLOCK[:2]]) == ["before"]
    assert tracebacks.release() == BLOCK[:2]
    assert tracebacks.shorten(["    later"]) == ["    later"]
