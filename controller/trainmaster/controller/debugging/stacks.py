"""The stacks of all tasks and of all threads, as text.

Guarantees:
- M-9: places in the code are shown, and names of tasks and threads; no value of any variable.
- Tasks that wait at the same place are shown together, as a thousand workers may. The text has bounds, whatever runs.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

MAX_TASKS: Final = 10_000
MAX_FRAMES: Final = 50
_NAMES_SHOWN: Final = 8

_PARTS: Final = ("cr", "gi", "ag")
"""How attributes of coroutines, generators and asynchronous generators begin."""


def task_stacks(loop: asyncio.AbstractEventLoop) -> str:
    """Return the stacks of all tasks of a loop, those that many share first; the latest call of each is the last.

    It may be called by a signal handler in the middle of anything.
    """
    tasks = list(asyncio.all_tasks(loop))
    by_stack: dict[tuple[str, ...], list[str]] = {}
    for task in tasks[:MAX_TASKS]:
        stack = tuple(map(_place, _frames_of_task(task)))
        by_stack.setdefault(stack, []).append(task.get_name())
    lines = [f"{len(tasks)} tasks"]
    for stack, names in sorted(by_stack.items(), key=lambda each: (-len(each[1]), each[1])):
        names.sort()
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        lines += ["", f"{len(names)} x {', '.join(names[:_NAMES_SHOWN])}{more}", *(f"    {place}" for place in stack)]
    if len(tasks) > MAX_TASKS:
        lines += ["", f"{len(tasks) - MAX_TASKS} tasks are not shown"]
    return "".join(f"{line}\n" for line in lines)


def thread_stacks() -> str:
    """Return the stacks of all threads; the latest call of each is the last."""
    found = threads()
    lines = [f"{len(found)} threads"]
    for name, frame in sorted(found, key=lambda each: each[0]):
        lines += ["", name, *(f"    {place}" for place in reversed([_place(each) for each in outwards(frame)]))]
    return "".join(f"{line}\n" for line in lines)


def threads() -> list[tuple[str, FrameType]]:
    """Return the innermost call of each thread, by its name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - documented
    return [(names.get(ident, f"thread {ident}"), frame) for ident, frame in frames.items()]


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Return a call and those that it was called by, so many at most."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def call(frame: FrameType) -> str:
    """Return the name of what a frame runs: `package.module.Class.method`."""
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def _place(frame: FrameType) -> str:
    return f"{call(frame)}:{frame.f_lineno}"


def _frames_of_task(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Return what a task runs and what that waits for, down to what no Python code does."""
    waiting: Any = task.get_coro()
    for _ in range(MAX_FRAMES):
        for part in _PARTS:
            frame = getattr(waiting, f"{part}_frame", None)
            if frame is not None:
                yield frame
                waiting = getattr(waiting, f"{part}_yieldfrom" if part == "gi" else f"{part}_await", None)
                break
        else:
            return
