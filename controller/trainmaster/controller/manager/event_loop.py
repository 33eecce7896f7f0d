"""The event loop of the manager: uvloop's where that is installed, as in the image, and otherwise that of Python.

Guarantees:
- Whichever it is, the manager does the same; the first line of its log names it.

The lease is renewed on a loop of its own (see `kube.leaderelection.election_thread`), which is Python's in any case: it
makes a request every few seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a program to its end, as `asyncio.run` does, on the loop that there is."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def name_of(loop: asyncio.AbstractEventLoop) -> str:
    """Return the package that a loop comes from: `uvloop` or `asyncio`."""
    return type(loop).__module__.partition(".")[0]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
