"""The workers of the webhooks: who judges reviews, and how many may wait for that.

A usual review takes less than a millisecond and is judged on the event loop: a thread would cost a quarter more. The
largest objects that an API server sends take seconds, most of them in Python. They are judged in a thread, which gives
way to the loop every millisecond (`manager.process.switch_threads_often`).

Guarantees:
- H-16: small reviews never wait for large ones: each size has a worker of its own, which judges one at a time.
- Where plugins of others have a say, they are judged in threads, some at a time: a plugin that never comes back costs
  the request in which it was called, and no other one.
- The loop turns between any two reviews, so that watches and probes wait for one of them at most.
- Whoever could not be answered in time is refused at once (`Overloaded`), before anything is done for it. What counts
  is the time that those before it will take, by what the last ones took for each byte.
- Large bodies have so many bytes in total at most, those included that are still on their way, and those of one peer
  half of that: whoever sends slow ones cannot have the reviews of others refused. Small bodies are never refused.
- Of large reviews one at a time is in memory from when it is read until it is answered (`turn`): what is read may take
  thirty times the memory of its text.
- What nobody waits for any more counts until the thread that judges it has come back; threads that call plugins have
  a bound of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Final, ParamSpec, TypeVar

from trainmaster.controller.plugins.threads import PluginThreads, call_soon

P = ParamSpec("P")
T = TypeVar("T")

LARGE: Final = 16 * 1024
"""Bytes of a body, and of the runtime that it is judged with, above which a thread judges. What is usual has less than
ten thousand; the worst that can be written with these takes 20 to 30 ms.
"""

LONGEST_WAIT: Final = 5.0
"""Seconds that those who come before may take; API servers wait for ten, and what has to be waited for may vary."""

PLUGIN_TIME_LIMIT: Final = 5.0
"""Seconds that one call of a plugin may take at admission, whatever the configuration allows elsewhere: with what it
takes to end it, API servers are answered in time.
"""

SMALL_AT_ONCE: Final = 4
"""Small reviews that are judged at once where plugins of others have a say: so many may be stuck before others wait."""

MAX_BYTES: Final = 48 * 1024 * 1024
"""Of all bodies at once, beyond the first `LARGE` bytes of each."""

_FIRST_BYTES: Final = 1_000_000
_FIRST_SECONDS: Final = 1.0
"""What reviews took, until there were some."""

_FADES: Final = 0.95
"""How much a review counts still after the next one."""


class Overloaded(Exception):
    """Too much is under way; what is asked for later may be done."""


class Worker:
    """Judges one review at a time, and knows how long those that wait will take.

    Args:
        executor: The one thread in which it judges; None: on the event loop.
        plugin_threads: The threads in which it judges instead where plugins of others have a say.
    """

    def __init__(
        self, executor: ThreadPoolExecutor | None = None, *, plugin_threads: PluginThreads | None = None
    ) -> None:
        self._executor = executor
        self._plugin_threads = plugin_threads
        self._turn = asyncio.Lock()
        self._under_way = 0
        self._waiting = 0
        """Bytes of reviews that are judged by this worker alone, and whose turn has not come."""

        self._recent_bytes: float = _FIRST_BYTES
        self._recent_seconds = _FIRST_SECONDS

    @property
    def is_full(self) -> bool:
        """Whether a further review would wait for too long."""
        return self._takes_too_long(self._under_way + self._waiting)

    def _takes_too_long(self, size: int) -> bool:
        return size * self._recent_seconds > LONGEST_WAIT * self._recent_bytes

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """Have a review of so many bytes to oneself during the block, beside those that take no turn.

        Raises:
            Overloaded: It would wait for too long.
        """
        if self.is_full:
            raise Overloaded
        self._waiting += size
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= size
        try:
            yield
        finally:
            self._turn.release()

    async def run(self, size: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function when its turn comes; cancelled before, it is not called.

        Args:
            size: How many bytes it judges.

        Raises:
            Overloaded: It would wait for too long.
        """
        if self._takes_too_long(self._under_way):
            raise Overloaded
        loop = asyncio.get_running_loop()
        timed = partial(self._timed, size, partial(function, *args, **kwargs))
        self._under_way += size
        if self._executor is not None:
            context = copy_context()  # what traces say of the review is in it
            future = self._executor.submit(context.run, timed)
            future.add_done_callback(lambda _: call_soon(loop, partial(self._end, size)))
            return await asyncio.wrap_future(future)
        try:
            await self._turn.acquire()
            # The turn ends when the loop has made one, not at once.
            loop.call_soon(self._turn.release)
            return timed()
        finally:
            self._end(size)

    async def run_plugins(self, size: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in which plugins are called; otherwise like `run`.

        Raises:
            Overloaded: It would wait for too long.
            PluginFailed: A plugin does not come back.
        """
        if self._plugin_threads is None:
            return await self.run(size, function, *args, **kwargs)
        if self._takes_too_long(self._under_way):
            raise Overloaded
        self._under_way += size
        try:
            # What a plugin takes is not what the next review will: it is not timed.
            return await self._plugin_threads.run(partial(function, *args, **kwargs))
        finally:
            self._end(size)

    def _end(self, size: int) -> None:
        self._under_way -= size

    def _timed(self, size: int, judge: Callable[[], T]) -> T:
        started = time.perf_counter()
        try:
            return judge()
        finally:
            self._recent_seconds = self._recent_seconds * _FADES + (time.perf_counter() - started)
            self._recent_bytes = self._recent_bytes * _FADES + size

    def close(self) -> None:
        """Take no more, and forget what has not begun."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
        if self._plugin_threads is not None:
            self._plugin_threads.close()


class Workers:
    """The two workers, and the bytes of all bodies.

    Args:
        skips: Given where plugins of others have a say: tells whether TrainJobs go on without one that fails.
    """

    def __init__(self, skips: Callable[[str], bool] | None = None) -> None:
        small = large = None
        if skips is not None:
            small = PluginThreads("webhooks", size=SMALL_AT_ONCE, skips=skips, time_limit=PLUGIN_TIME_LIMIT)
            large = PluginThreads("webhooks", size=1, skips=skips, time_limit=PLUGIN_TIME_LIMIT)
        self._small = Worker(plugin_threads=small)
        self._large = Worker(ThreadPoolExecutor(1, thread_name_prefix="webhooks"), plugin_threads=large)
        self._bytes = Counter[str | None]()

    def of(self, size: int) -> Worker:
        """Return the worker for so many bytes."""
        return self._large if size > LARGE else self._small

    @contextmanager
    def body(self, peer: str | None) -> Iterator[Callable[[int], None]]:
        """Count a body of a peer during the block, which calls what is yielded with the number of bytes of each part.

        That raises `Overloaded` when all bodies together, or those of the peer, are too large.
        """
        read = taken = 0

        def take(size: int) -> None:
            nonlocal read, taken
            read += size
            more = max(0, read - LARGE) - taken
            if self._bytes.total() + more > MAX_BYTES or self._bytes[peer] + more > MAX_BYTES // 2:
                raise Overloaded
            taken += more
            self._bytes[peer] += more

        try:
            yield take
        finally:
            self._bytes[peer] -= taken
            if not self._bytes[peer]:
                del self._bytes[peer]

    def close(self) -> None:
        """End the threads."""
        self._small.close()
        self._large.close()
