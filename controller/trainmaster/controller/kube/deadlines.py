"""Timeouts of equal length, of many requests or reconciles at a time: one timer for all of them.

Guarantees:
- Each ends its block as `asyncio.timeout` does: by a cancellation that becomes a `TimeoutError`, unless somebody else
  has cancelled the task as well.
- A block that ends in time costs no timer: those that began earlier are due earlier, so that only the oldest is waited
  for.
- It takes no system call to begin one. Until Python 3.12 each question for the running event loop is one, and
  `current_task` asks unless it is told.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from trainmaster.controller.kube.clock import Clock, Timer


class Deadlines:
    """The deadlines of blocks that may all take as long.

    Args:
        clock: The time.
        limit: Seconds.
    """

    def __init__(self, clock: Clock, limit: float) -> None:
        self._clock = clock
        self._limit = limit
        self._running: dict[Deadline, None] = {}
        """In the order in which they began."""
        self._timer: Timer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """That of the timer."""

    def begin(self) -> Deadline:
        """Return what ends a `with` block of this task, which begins now, when its time has passed."""
        if self._timer is None:
            self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        due = self._clock.monotonic() + self._limit
        deadline = Deadline(self._running, task, due)
        self._running[deadline] = None
        if self._timer is None:
            self._timer = self._clock.call_at(due, self._tick)
        return deadline

    def close(self) -> None:
        """Forget the timer; blocks that still run have no deadline any more."""
        self._running.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        for deadline in list(self._running):
            if now < deadline.due:
                self._timer = self._clock.call_at(deadline.due, self._tick)
                return
            del self._running[deadline]
            deadline.expire()


class Deadline:
    """The deadline of one block, which has begun."""

    __slots__ = ("_cancelling", "_expired", "_running", "_task", "due")

    def __init__(self, running: dict[Deadline, None], task: asyncio.Task[Any], due: float) -> None:
        self.due = due
        self._running = running
        self._task = task
        self._cancelling = task.cancelling()
        self._expired = False

    def __enter__(self) -> None:
        """Go on: the block has begun."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running.pop(self, None)
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """End the block."""
        self._expired = True
        self._task.cancel()
