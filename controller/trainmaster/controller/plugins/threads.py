"""The threads in which plugins run that are not ours: one that never comes back holds up nobody else.

Guarantees:
- Not more than so many pieces of work are under way at once; others wait, in order.
- Of work in which a call does not end it is told at once. Its thread is left to itself, and ends when the call does;
  another one takes its place.
- Where TrainJobs go on without the plugin, the work is done again without it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from trainmaster.controller.plugins.watchdog import SURROUNDINGS, Call
from trainmaster.runtime.framework.calls import CallEnded, PluginFailed

T = TypeVar("T")

PLANNERS: Final = 4
"""Threads for reconciles: so many plugins may be stuck before others wait for them."""


class PluginThreads:
    """Threads, made when they are needed.

    Args:
        name: What debuggers call them.
        size: How many there are at most, those apart that are left to themselves.
        skips: Tells whether TrainJobs go on without a plugin that fails.
        time_limit: Seconds that one call may take here, if that is less than elsewhere.
    """

    def __init__(
        self, name: str, *, size: int = PLANNERS, skips: Callable[[str], bool], time_limit: float | None = None
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
            PluginFailed: A call in it does not end.
        """
        refused: dict[str, CallEnded] = {}
        while True:
            try:
                return await self._run(function, refused)
            except _Stuck as stuck:
                plugin, error = stuck.call.plugin, stuck.call.error
                if error is None or plugin in refused or not self._skips(plugin):
                    raise PluginFailed(plugin, stuck.call.phase, error or stuck) from None
                refused = {**refused, plugin: error}

    def close(self) -> None:
        """End the threads that have nothing to do, and each other one when it has done what it is at."""
        self._closed = True
        for thread in self._idle:
            thread.end()
        self._idle.clear()

    async def _run(self, function: Callable[[], T], refused: Mapping[str, CallEnded]) -> T:
        await self._places.acquire()
        loop, context = asyncio.get_running_loop(), copy_context()  # what log lines say of the TrainJob is in it
        thread = self._idle.pop() if self._idle else _Thread(self._name)
        future: Future[T] = Future()
        end = threading.Lock()  # of the work: whoever takes it tells how it ended, and frees the place

        def give_up(call: Call) -> None:
            if end.acquire(blocking=False):
                _settle(future.set_exception, _Stuck(call))
                thread.end()
                _call_soon(loop, self._places.release)

        def work() -> None:
            SURROUNDINGS.time_limit = self._time_limit
            SURROUNDINGS.on_stuck = give_up
            SURROUNDINGS.refused = refused
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = context.run(function)
            except BaseException as error:
                failure = error
            if not end.acquire(blocking=False):
                return
            _call_soon(loop, lambda: self._take_back(thread))  # first: whoever waits may want it next
            if failure is not None:
                _settle(future.set_exception, failure)
            else:
                _settle(future.set_result, result)

        thread.give(work)
        return await asyncio.wrap_future(future)

    def _take_back(self, thread: _Thread) -> None:
        if self._closed:
            thread.end()
        else:
            self._idle.append(thread)
        self._places.release()


class _Stuck(Exception):
    """A call does not end."""

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


def _settle(settle: Callable[[Any], object], value: Any) -> None:
    """Tell what came out, unless nobody waits for it any more."""
    with suppress(InvalidStateError):
        settle(value)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and with it everybody whom this concerns
        loop.call_soon_threadsafe(function)
