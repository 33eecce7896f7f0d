"""Short pauses of the garbage collector in a process that holds a cluster.

The API server's storage holds its objects as trees of JSON. They are in no cycle, so that the collector has nothing of
them to free, but each of its full passes walks through all of them: 1.5 s with what belongs to ten thousand TrainJobs,
during which the API server answers nobody.

Guarantees:
- What a full pass has found alive is left out of later ones (`gc.freeze`) if it took longer than `LONGEST_PASS`. It is
  freed as before when nothing refers to it any more.
- A cluster of usual size is collected as usual: its passes are shorter. In a large one, cycles stay that were alive at
  the end of such a pass and fell apart later; there is one such pass for each few thousand objects that are new.
"""

from __future__ import annotations

import gc
import time
from typing import Final

LONGEST_PASS: Final = 0.05
"""Seconds."""


class PassLimit:
    """Freezes what is alive when passes take too long: a callback of the garbage collector."""

    def __init__(self, longest: float = LONGEST_PASS) -> None:
        self._longest = longest
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Take note that a pass begins or has ended."""
        if phase == "start":
            self._began = time.monotonic()
        elif info["generation"] == 2 and time.monotonic() - self._began > self._longest:
            gc.freeze()


def limit_passes() -> None:
    """Keep passes short from now on, for as long as the process lives."""
    gc.callbacks.append(PassLimit())
