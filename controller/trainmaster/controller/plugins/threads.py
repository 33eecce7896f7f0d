"""The threads in which plugins run that are not ours: one that never comes back holds up nobody else.

Guarantees:
- Not more than so many pieces of work are under way at once; others wait, in order.
- Work in which a call takes longer than it may is waited for no longer. Its thread is left to that call, and ends when
  it does; another one takes its place.
- Where TrainJobs go on without the plugin, the work is done again without it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from trainmaster.controller.plugins.guard import CURRENT, Call, Work
from trainmaster.runtime.framework.calls import CallEnded, PluginFailed

T = TypeVar("T")

PLANNERS: Final = 4
"""Threads for reconciles."""

INTERVAL: Final = 0.1
"""Seconds between two looks at a call that is under way."""


class PluginThreads:
    """Threads, made when they are needed.

    Args:
        name: What debuggers call them.
        size: How many there are at most, those apart that are left to themselves.
        skips: Tells whether TrainJobs go on without a plugin that fails.
        time_limit: Seconds that one call may take here, if that is less than elsewhere.
    """

    def __init__(
        self, name: str, *, size: int = PLANNERS, skips: Callable[[str], bool], time_limit: float = float("inf")
    ) -> None:
        self._name = name
        self._skips = skips
        self._time_limit = time_limit
        self._places = asyncio.Semaphore(size)
        self._idle: list[_Thread] = []
        self._closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in one of the threads; cancelled, it is left to end by itself.

        Raises:
            PluginFailed: A call in it takes too long.
        """
        refused: dict[str, CallEnded] = {}
        while True:
            try:
                return await self._run(function, refused)
            except _Stuck as stuck:
                call = stuck.call
                if call.plugin in refused or not self._skips(call.plugin):
                    raise PluginFailed(call.plugin, call.phase, call.error) from None
                refused = {**refused, call.plugin: call.error}

    def close(self) -> None:
        """End the threads that have nothing to do, and each other one when it has done what it is at."""
        self._closed = True
        for thread in self._idle:
            thread.end()
        self._idle.clear()

    async def _run(self, function: Callable[[], T], refused: Mapping[str, CallEnded]) -> T:
        await self._places.acquire()
        loop, context = asyncio.get_running_loop(), copy_context()  # what log lines say of the TrainJob is in it
        try:
            thread = self._idle.pop() if self._idle else _Thread(self._name)
        except RuntimeError:  # the system has no more of them
            self._places.release()
            raise
        work = Work(time_limit=self._time_limit, refused=refused)
        future: asyncio.Future[T] = loop.create_future()
        next_look: asyncio.TimerHandle | None = None

        def in_thread() -> None:
            CURRENT.work = work
            try:
                result = context.run(function)
            except BaseException as error:
                call_soon(loop, partial(ended, future.set_exception, error))
            else:
                call_soon(loop, partial(ended, future.set_result, result))

        def ended(settle: Callable[[Any], object], value: Any) -> None:
            if work.given_up is None:
                if next_look is not None:
                    next_look.cancel()
                self._take_back(thread)  # first: whoever waits may want it next
                if not future.done():
                    settle(value)

        def look() -> None:
            nonlocal next_look
            call = work.call
            if call is None or not call.give_up():
                next_look = loop.call_later(INTERVAL, look)
                return
            work.given_up = call.error
            thread.end()
            self._places.release()
            if not future.done():
                future.set_exception(_Stuck(call))

        next_look = loop.call_later(INTERVAL, look)
        thread.give(in_thread)
        return await future

    def _take_back(self, thread: _Thread) -> None:
        if self._closed:
            thread.end()
        else:
            self._idle.append(thread)
        self._places.release()


class _Stuck(Exception):
    """A call takes too long."""

    def __init__(self, call: Call) -> None:
        super().__init__(str(call.error))
        self.call = call


class _Thread:
    """One thread; the process does not wait for it when it ends."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def give(self, work: Callable[[], None]) -> None:
        """Do something, after everything that was given before."""
        self._work.put(work)

    def end(self) -> None:
        """End, after everything that was given before."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Have a loop call a function, from a thread that may live longer than the loop."""
    with suppress(RuntimeError):  # the loop has ended, and with it everybody whom this concerns
        loop.call_soon_threadsafe(function)
