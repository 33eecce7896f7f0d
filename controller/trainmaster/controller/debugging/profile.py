"""A sampling profile of the threads of this process, on request.

Guarantees:
- M-9: nothing is installed into the code that runs, so it costs a few percent while it lasts and nothing otherwise.
- One profile is taken at a time, of so many seconds at most, and it ends with the process.
- It is text of the form that flame graphs are made of: a line for each stack, `thread;outer;inner count`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Final

from trainmaster.controller.debugging.stacks import call, outwards, threads

LONGEST: Final = 60.0
"""Seconds."""

_INTERVAL: Final = 0.01
"""Seconds between two samples: a hundred a second, as the CPU profiles of Go have."""

_MAX_STACKS: Final = 20_000
"""Stacks that differ; those beyond are counted together."""


class ProfileRunning(Exception):
    """A profile is being taken already."""


class Profiler:
    """Takes profiles, one at a time."""

    def __init__(self) -> None:
        self._running = False

    async def profile(self, seconds: float) -> str:
        """Look at all threads for so many seconds; returns collapsed stacks, the most frequent one first.

        Raises:
            ProfileRunning: Another one is under way.
        """
        if self._running:
            raise ProfileRunning
        self._running = True
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
            self._running = False
        return "".join(f"{stack} {count}\n" for stack, count in counts.most_common())


def _sample(counts: Counter[str]) -> None:
    own = threading.current_thread().name
    for name, frame in threads():
        if name != own:
            stack = ";".join([name, *reversed([call(each) for each in outwards(frame)])])
            counts[stack if stack in counts or len(counts) < _MAX_STACKS else f"{name};(others)"] += 1
