"""Counting calls: how much work a function does, on whatever machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Calls:
    """How many functions were called, of Python and in C; a generator that goes on counts as called."""

    count = 0


@contextmanager
def counted_calls() -> Iterator[Calls]:
    """Count the calls in a block, of this thread."""
    calls = Calls()

    def note(_frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            calls.count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def calls_of(function: Callable[[], object]) -> int:
    """Return how many calls a function makes."""
    with counted_calls() as calls:
        function()
    return calls.count
