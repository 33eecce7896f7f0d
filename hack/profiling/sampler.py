"""A sampling profiler by CPU time, within the process that it looks at.

The kernel sends a signal for every so many milliseconds of CPU that the process has used; Python answers it in the main
thread, between two bytecodes, with the stack of that moment. What a function of C does counts for the Python function
that called it. Nothing is installed into the code that runs.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

INTERVAL: Final = 0.002
"""Seconds of CPU between two samples; kernels round it up to their own ticks."""

_DEEPEST: Final = 200

_Stack: TypeAlias = tuple[CodeType, ...]


class Sampler:
    """Counts stacks, by the second in which they were seen."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, _Stack]] = Counter()

    def sample(self, _number: int, frame: FrameType | None) -> None:
        """Take the stack of a frame: the handler of the signal."""
        stack: list[CodeType] = []
        while frame is not None and len(stack) < _DEEPEST:
            stack.append(frame.f_code)
            frame = frame.f_back
        self._counts[int(time.monotonic()), tuple(stack)] += 1

    def document(self) -> list[dict[str, Any]]:
        """Return what was counted: second of the monotonic clock, count, and the calls from the innermost one on."""
        return [
            {"second": second, "count": count, "calls": [[code.co_filename, code.co_qualname] for code in stack]}
            for (second, stack), count in self._counts.items()
        ]


@contextmanager
def sampled(file: Path) -> Iterator[None]:
    """Profile the block and write what was counted into a file."""
    sampler = Sampler()
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        file.write_text(json.dumps(sampler.document()), encoding="utf-8")
