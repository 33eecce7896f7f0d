"""A sampling profiler by CPU time, within the process that it looks at.

The kernel sends a signal for every so many milliseconds of CPU that the process has used; Python answers it in the main
thread, between two bytecodes, with the stack of that moment. Guarantees:

- Nothing is installed into the code that runs; what a function of C does counts for the Python function that called it.
- Garbage collections, which happen within whatever allocates, are told apart: a callback is all that they call, so the
  signal of a collection finds that.
- What other threads use is seen as well, but with the stack of the main thread, which is mostly waiting then.
"""

from __future__ import annotations

import gc
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, TypeAlias

INTERVAL: Final = 0.002
"""Seconds of CPU between two samples; kernels round it up to their own ticks."""

MOMENTS: Final = 10
"""Into so many parts a second is divided; a phase ends with a second of rest."""

_DEEPEST: Final = 200

_Stack: TypeAlias = tuple[CodeType, ...]


class Call(NamedTuple):
    """A function in a stack."""

    file: str
    function: str


class Sample(NamedTuple):
    """A stack, as often as it was seen in one moment."""

    moment: float
    """On the monotonic clock, which all processes of a machine share."""

    times: int
    calls: Sequence[Call]
    """From the innermost one on."""


class Sampler:
    """Counts stacks, by the moment in which they were seen."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, _Stack]] = Counter()

    def sample(self, _number: int, frame: FrameType | None) -> None:
        """Take the stack of a frame: the handler of the signal."""
        stack: list[CodeType] = []
        while frame is not None and len(stack) < _DEEPEST:
            stack.append(frame.f_code)
            frame = frame.f_back
        self._counts[int(time.monotonic() * MOMENTS), tuple(stack)] += 1

    def document(self) -> list[Any]:
        """Return what was counted, for `read`."""
        return [
            [moment / MOMENTS, count, [[code.co_filename, code.co_qualname] for code in stack]]
            for (moment, stack), count in self._counts.items()
        ]


def collected(_phase: str, _info: dict[str, int]) -> None:
    """Do nothing: where the signal of a garbage collection is answered."""


@contextmanager
def sampled(file: Path) -> Iterator[None]:
    """Profile the block and write what was counted into a file."""
    sampler = Sampler()
    gc.callbacks.insert(0, collected)
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.callbacks.remove(collected)
        file.write_text(json.dumps(sampler.document()), encoding="utf-8")


def read(file: Path) -> Iterator[Sample]:
    """Read what `sampled` has written."""
    for moment, times, calls in json.loads(file.read_text(encoding="utf-8")):
        yield Sample(moment, times, [Call(*each) for each in calls])
