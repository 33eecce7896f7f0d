"""A stack dump on a signal, as Go programs have one: SIGUSR1, and unlike theirs the process goes on.

Guarantees:
- M-10: the stacks of all threads are written to standard error by the interpreter itself, also while the event loop is
  stuck or everything waits for the interpreter; then, as soon as the main thread runs Python, those of all tasks.
- It is written past the log, whose locks the code that was interrupted may hold.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from trainmaster.controller.debugging.stacks import task_stacks

DUMP_SIGNAL: Final = signal.SIGUSR1


@contextmanager
def stack_dumps_on_signal() -> Iterator[None]:
    """Write a stack dump for each `DUMP_SIGNAL` while the block runs, on the running loop of the main thread."""
    loop, target = asyncio.get_running_loop(), sys.stderr.fileno()

    def dump_tasks(_number: int, _frame: object) -> None:
        _write(target, f"\nStacks of tasks (most recent call last): {task_stacks(loop)}\n")

    before = signal.signal(DUMP_SIGNAL, dump_tasks)
    # It calls the handler that it replaces, which the interpreter then runs in the main thread.
    faulthandler.register(DUMP_SIGNAL, file=target, all_threads=True, chain=True)
    try:
        yield
    finally:
        faulthandler.unregister(DUMP_SIGNAL)
        signal.signal(DUMP_SIGNAL, before)


def _write(target: int, text: str) -> None:
    left = text.encode(errors="replace")
    while left:
        left = left[os.write(target, left) :]
