"""What the supervisor and its shims need from the operating system; standard library only.

See `supervisor` for the picture. Everything here must start fast and survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

LINUX = sys.platform.startswith("linux")

KILL = signal.SIGUSR1
"""What a shim understands as "kill your container now"."""

HANDLED = (signal.SIGTERM, KILL, signal.SIGCHLD)
"""The signals that arrive through a `SignalPipe`."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl if LINUX else None


def adopt_orphans() -> None:
    """Become the parent of descendants that lose theirs, so that they can be found and reaped."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int) -> None:
    """Ask the kernel for signal `number` when the parent process ends."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def reap(on_exit: Callable[[int, int], None]) -> bool:
    """Collect the ended child processes, each as `on_exit(pid, wait status)`; say whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        on_exit(pid, status)


def report(identity: str, event: str, **fields: Any) -> None:
    """Report to the server; nobody listens any more when it is gone, and then its pipe ends us anyway."""
    line = json.dumps({"id": identity, "event": event, "at": time.time(), **fields}) + "\n"
    with contextlib.suppress(BrokenPipeError):
        os.write(1, line.encode())


class SignalPipe:
    """Signals as bytes that `select` can wait for."""

    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in HANDLED:
            signal.signal(number, _note)

    def drain(self) -> set[int]:
        """Give the signals that arrived since the last call."""
        with contextlib.suppress(BlockingIOError):
            return set(os.read(self.read_end, 4096))
        return set()


def _note(_number: int, _frame: object) -> None:
    """Let the interpreter write the signal's number to the wake-up pipe, which it does for handled signals only."""


def children() -> list[int]:
    """List the processes whose parent is this one (Linux)."""
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children", encoding="ascii") as listing:  # noqa: PTH123 - pathlib would double the start-up time
            return [int(pid) for pid in listing.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and parent_of(int(entry)) == own]  # noqa: PTH208 - as above


def parent_of(pid: int) -> int:
    """Give the parent of a process, or 0 if there is no such process (Linux)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123 - as above
            return int(stat.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
