"""The threads in which plugins of others run: one that never returns holds up nobody else.

Guarantees:
- Not more than so many pieces of work are under way at once; others wait, in order.
- Work in which a call takes longer than it may is waited for no longer. Its thread is left to that call, and ends when
  it does; another one takes its place.
- Where TrainJobs go on without the plugin, the work is done again without it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Final, TypeAlias, TypeVar

from trainmaster.controller.plugins.guard import CURRENT, Work
from trainmaster.runtime.framework.calls import PluginFailed, TimeLimitExceeded

T = TypeVar("T")
Inbox: TypeAlias = "SimpleQueue[Callable[[], None] | None]"
"""What a thread does, one after the other; None ends it."""

PLANNERS: Final = 4
"""Threads for reconciles."""

INTERVAL: Final = 0.1
"""Seconds between two looks at a call that is under way."""


class PluginThreads:
    """Threads, made when they are needed and used again.

    Args:
        size: How many there are at most, without those that are left to themselves.
        skips: Returns whether TrainJobs go on without a plugin that fails.
        time_limit: Seconds that one call may take here, if that is less than the guard allows.
    """

    def __init__(
        self, name: str, *, size: int = PLANNERS, skips: Callable[[str], bool], time_limit: float = float("inf")
    ) -> None:
        self._name = name
        self._skips = skips
        self._time_limit = time_limit
        self._places = asyncio.Semaphore(size)
        self._idle: list[Inbox] = []
        self._closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in one of the threads; cancelled, it is left to end by itself.

        Raises:
            PluginFailed: A call in it takes too long.
        """
        refused: dict[str, TimeLimitExceeded] = {}
        while True:
            work = Work(time_limit=self._time_limit, refused=dict(refused))
            try:
                return await self._run(function, work)
            except PluginFailed as error:
                if work.given_up is None or error.plugin in refused or not self._skips(error.plugin):
                    raise
                refused[error.plugin] = work.given_up.error

    def close(self) -> None:
        """End the threads that are idle, and each other one when it has done what it is at."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    async def _run(self, function: Callable[[], T], work: Work) -> T:
        await self._places.acquire()
        try:
            inbox = self._idle.pop() if self._idle else _new_thread(self._name)
        except RuntimeError:  # the system has no more of them
            self._places.release()
            raise
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        next_look: asyncio.TimerHandle

        def in_thread() -> None:
            CURRENT.set(work)
            try:
                settle = partial(result.set_result, function())
            except BaseException as error:
                settle = partial(result.set_exception, error)
            call_soon(loop, partial(ended, settle))

        def ended(settle: Callable[[], None]) -> None:
            if work.given_up is not None:
                return
            next_look.cancel()
            if self._closed:
                inbox.put(None)
            else:
                self._idle.append(inbox)
            self._places.release()  # first: whoever waits may want it next
            if not result.done():
                settle()

        def look() -> None:
            nonlocal next_look
            call = work.call
            if call is None or not call.guard.give_up(work):
                next_look = loop.call_later(INTERVAL, look)
                return
            inbox.put(None)
            self._places.release()
            if not result.done():
                result.set_exception(PluginFailed(call.plugin, call.phase, call.error))

        next_look = loop.call_later(INTERVAL, look)
        inbox.put(partial(copy_context().run, in_thread))  # what log lines say of the TrainJob is in the context
        return await result


def _new_thread(name: str) -> Inbox:
    """Start a thread, for which the process does not wait when it ends."""
    inbox: Inbox = SimpleQueue()

    def work_off() -> None:
        while (work := inbox.get()) is not None:
            work()
            del work  # an idle thread holds nothing

    threading.Thread(target=work_off, name=name, daemon=True).start()
    return inbox


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    """Have a loop call a function, from a thread that may live longer than the loop."""
    with suppress(RuntimeError):  # the loop has ended, and with it everybody whom this concerns
        loop.call_soon_threadsafe(function)
