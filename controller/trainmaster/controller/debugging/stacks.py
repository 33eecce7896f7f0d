"""Where the tasks and the threads of this process are: as text, on a signal, and as a sampling profile.

Guarantees:
- M-9: places in the code are shown, and names of tasks and threads; no value of any variable.
- Tasks that wait at the same place are shown together, as a thousand workers may. The text has bounds, whatever runs.
- M-10: on SIGUSR1, as in Go programs, but the process goes on, the interpreter itself writes the stacks of all threads
  to standard error, also while the event loop is stuck or everything waits for the interpreter; then, as soon as the
  main thread runs Python, those of all tasks follow. They pass by the log, whose locks the interrupted code may hold.
- M-9: a profile installs nothing into the code that runs: it costs a few percent while it lasts and nothing otherwise.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

MAX_TASKS: Final = 10_000
MAX_FRAMES: Final = 50
_NAMES_SHOWN: Final = 8

MAX_PROFILED: Final = 20_000
"""Stacks of a profile that differ; those beyond are counted together."""

_INTERVAL: Final = 0.01
"""Seconds between two samples: a hundred a second, as the CPU profiles of Go have."""

DUMP_SIGNAL: Final = signal.SIGUSR1

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
    found = _threads()
    lines = [f"{len(found)} threads"]
    for name, frame in sorted(found, key=lambda each: each[0]):
        lines += ["", name, *(f"    {place}" for place in reversed([_place(each) for each in _outwards(frame)]))]
    return "".join(f"{line}\n" for line in lines)


@contextmanager
def stack_dumps_on_signal() -> Iterator[None]:
    """Write a stack dump for each `DUMP_SIGNAL` while the block runs, on the running loop of the main thread."""
    loop, target = asyncio.get_running_loop(), sys.stderr.fileno()

    def dump_tasks(_number: int, _frame: object) -> None:
        left = f"\nStacks of tasks (most recent call last): {task_stacks(loop)}\n".encode(errors="replace")
        while left:
            left = left[os.write(target, left) :]

    before = signal.signal(DUMP_SIGNAL, dump_tasks)
    # It calls the handler that it replaces, which the interpreter then runs in the main thread.
    faulthandler.register(DUMP_SIGNAL, file=target, all_threads=True, chain=True)
    try:
        yield
    finally:
        faulthandler.unregister(DUMP_SIGNAL)
        signal.signal(DUMP_SIGNAL, before)


async def profile(seconds: float) -> str:
    """Look at all threads for so many seconds; returns a line `thread;outer;inner count` for each stack, the most
    frequent one first, as flame graphs are made of.
    """
    counts: Counter[str] = Counter()
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(_INTERVAL):
            _sample(counts)

    sampler = threading.Thread(target=sample, name="profiler", daemon=True)
    try:
        sampler.start()
        await asyncio.sleep(seconds)
    finally:
        ended.set()
        sampler.join()
    return "".join(f"{stack} {count}\n" for stack, count in counts.most_common())


def _sample(counts: Counter[str]) -> None:
    own = threading.current_thread().name
    for name, frame in _threads():
        if name != own:
            stack = ";".join([name, *reversed([_call(each) for each in _outwards(frame)])])
            counts[stack if stack in counts or len(counts) < MAX_PROFILED else f"{name};(others)"] += 1


def _threads() -> list[tuple[str, FrameType]]:
    """Return the innermost call of each thread, by its name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - documented
    return [(names.get(ident, f"thread {ident}"), frame) for ident, frame in frames.items()]


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Return a call and those that it was called by, so many at most."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _call(frame: FrameType) -> str:
    """Return the name of what a frame runs: `package.module.Class.method`."""
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def _place(frame: FrameType) -> str:
    return f"{_call(frame)}:{frame.f_lineno}"


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
