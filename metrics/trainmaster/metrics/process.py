"""The metrics of a Python process besides its memory and its CPU (K-12).

What counts the passes of the garbage collector takes no lock: they may begin in the middle of an observation of any
metric, whose lock it would wait for forever.
"""

from __future__ import annotations

import asyncio
from typing import Final

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Gauge, Histogram

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

LOOP_LAG = Histogram(
    "trainmaster_event_loop_lag_seconds", "How much later than due the event loop ran a timer", buckets=_BUCKETS,
    registry=REGISTRY,
)  # fmt: skip
LOOP_LAG_WORST = Gauge(
    "trainmaster_event_loop_lag_worst_seconds", "The longest lag of the event loop since the process started",
    registry=REGISTRY,
)  # fmt: skip
TASKS = Gauge("trainmaster_asyncio_tasks", "Tasks of the event loop that have not ended", registry=REGISTRY)


GC_PAUSES = Histogram(
    "trainmaster_gc_pause_seconds", "How long the garbage collector stopped the process", ("generation",),
    buckets=_BUCKETS, registry=REGISTRY,
)  # fmt: skip
GC_PAUSES_OF: Final = tuple(GC_PAUSES.labels(str(generation)) for generation in range(3))
"""By generation, found without the lock of the family."""


def count_tasks_of(loop: asyncio.AbstractEventLoop) -> None:
    """Count the tasks of this loop at every scrape."""
    TASKS.set_function(lambda: len(asyncio.all_tasks(loop)))


def forget_tasks() -> None:
    """Count no tasks any more, because the loop has ended."""
    TASKS.set_function(lambda: 0.0)
