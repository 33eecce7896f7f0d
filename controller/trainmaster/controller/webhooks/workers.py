"""The workers of the webhooks: threads in which reviews are judged, so that the event loop goes on meanwhile.

The largest object that an API server sends takes seconds to judge, most of them in Python. A thread gives way to the
loop every millisecond (`manager.process.switch_threads_often`); on the loop itself it would keep watches and probes
waiting.

Guarantees:
- H-16: small bodies never wait for large ones: each have a worker of their own, which judges one at a time.
- Only so many are under way. Others are refused at once (`Overloaded`), before anything is done for them.
- Bodies have so many bytes in total at most, those included that are still on their way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LARGE: Final = 128 * 1024
"""Bytes of a body that goes to the worker for large ones; a hundred times what is usual."""

MAX_SMALL: Final = 64
MAX_LARGE: Final = 4
"""How many reviews of either size are under way. A large one takes seconds, and API servers wait for ten."""

MAX_BYTES: Final = 48 * 1024 * 1024


class Overloaded(Exception):
    """Too much is under way; what is asked for later may be done."""


class Worker:
    """One thread, and the reviews that wait for it.

    Args:
        name: What the thread is called.
        most: How many reviews may be under way.
    """

    def __init__(self, name: str, most: int) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._most = most
        self._in_flight = 0

    @property
    def is_full(self) -> bool:
        """Whether no further review would be taken."""
        return self._in_flight >= self._most

    @contextmanager
    def review(self) -> Iterator[None]:
        """Count a review during the block.

        Raises:
            Overloaded: There are enough.
        """
        if self.is_full:
            raise Overloaded
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in the thread; cancelled before its turn comes, it is not called."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Take no more, and forget what has not begun."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Workers:
    """The two workers, and the bytes of all bodies."""

    def __init__(self) -> None:
        self._small = Worker("webhooks-small", MAX_SMALL)
        self._large = Worker("webhooks-large", MAX_LARGE)
        self._bytes = 0

    def of(self, size: int) -> Worker:
        """Return the worker for a body of so many bytes."""
        return self._large if size > LARGE else self._small

    @contextmanager
    def body(self) -> Iterator[Callable[[int], None]]:
        """Count a body during the block, which calls what is yielded with the number of bytes of each part.

        That raises `Overloaded` when all bodies together are too large.
        """
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if self._bytes + size > MAX_BYTES:
                raise Overloaded
            taken += size
            self._bytes += size

        try:
            yield take
        finally:
            self._bytes -= taken

    def close(self) -> None:
        """End both threads."""
        self._small.close()
        self._large.close()
