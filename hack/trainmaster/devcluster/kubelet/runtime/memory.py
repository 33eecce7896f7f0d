"""How much memory the processes of a container use, by /proc (Linux); standard library only.

Counted is what the kernel cannot drop: anonymous and shared memory, as a limit of a cgroup counts it in the end. What
processes share is counted once. That costs a walk through their page tables, so it is only done when the cheap sum, in
which shared pages count for each process, is over the limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

from trainmaster.devcluster.kubelet.runtime.processes import LINUX

INTERVAL = 0.2
"""Seconds between two looks: a process that is faster gets more than its limit for that long."""

_KIB = 1024


class MemoryLimit:
    """Watches the descendants of this process; without a limit, or without /proc, it never finds anything."""

    def __init__(self, limit: int) -> None:
        self._limit = limit if LINUX else 0
        self._next = 0.0

    @property
    def interval(self) -> float | None:
        """How long to wait at most before the next look."""
        return INTERVAL if self._limit else None

    def is_exceeded(self) -> bool:
        """Say whether the processes use more than the limit; looks at most once in an interval."""
        if not self._limit or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + INTERVAL
        processes = list(descendants(os.getpid()))
        if resident_memory(processes) <= self._limit:
            return False
        return proportional_memory(processes) > self._limit


def resident_memory(processes: Iterable[int]) -> int:
    """Add up the anonymous and shared memory of processes, in bytes; pages that several have count for each."""
    return sum(_fields(f"/proc/{pid}/status", ("RssAnon:", "RssShmem:")) or 0 for pid in processes)


def proportional_memory(processes: Iterable[int]) -> int:
    """Add up the anonymous and shared memory of processes, in bytes; pages that several have count once."""
    total = 0
    for pid in processes:
        share = _fields(f"/proc/{pid}/smaps_rollup", ("Pss_Anon:", "Pss_Shmem:"))
        total += resident_memory([pid]) if share is None else share
    return total


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below a process, at any depth."""
    waiting = [pid]
    while waiting:
        for child in _children(waiting.pop()):
            yield child
            waiting.append(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib would double the start-up time
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as listing:  # noqa: PTH123 - as above
                found += map(int, listing.read().split())
    except OSError:  # it has ended, or the kernel does not tell
        pass
    return found


def _fields(path: str, names: tuple[str, ...]) -> int | None:
    """Add up fields of a file of /proc that are given in kB; None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - as above
            return sum(int(line.split()[1]) * _KIB for line in lines if line.startswith(names))
    except OSError:
        return None
