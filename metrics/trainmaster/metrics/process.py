"""The metrics of a Python process besides its memory and its CPU (K-12).

The collector of `trainmaster_gc_pause_seconds` takes no lock: the garbage collector may run in the middle of an
observation of any other metric, whose lock it would wait for forever.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Gauge, Histogram

_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_GENERATIONS: Final = 3

LOOP_LAG = Histogram(
    "trainmaster_event_loop_lag_seconds", "How much later than due the event loop ran a timer", buckets=_BUCKETS,
    registry=REGISTRY,
)  # fmt: skip
LOOP_LAG_WORST = Gauge(
    "trainmaster_event_loop_lag_worst_seconds", "The longest lag of the event loop since the process started",
    registry=REGISTRY,
)  # fmt: skip
TASKS = Gauge("trainmaster_asyncio_tasks", "Tasks of the event loop that have not ended", registry=REGISTRY)


class PauseHistogram(Collector):
    """How long passes of the garbage collector took, by generation."""

    def __init__(self) -> None:
        self._counts = [[0] * (len(_BUCKETS) + 1) for _ in range(_GENERATIONS)]
        self._sums = [0.0] * _GENERATIONS

    def observe(self, generation: int, seconds: float) -> None:
        """Count one pass."""
        self._counts[generation][bisect.bisect_left(_BUCKETS, seconds)] += 1
        self._sums[generation] += seconds

    def collect(self) -> Iterable[Metric]:
        """Return the family as it is now."""
        family = HistogramMetricFamily(
            "trainmaster_gc_pause_seconds", "How long the garbage collector stopped the process", labels=["generation"]
        )
        edges = [*map(str, _BUCKETS), "+Inf"]
        for generation, counts in enumerate(self._counts):
            buckets = list(zip(edges, map(float, accumulate(counts)), strict=True))
            family.add_metric([str(generation)], buckets, self._sums[generation])
        yield family


GC_PAUSES = PauseHistogram()
REGISTRY.register(GC_PAUSES)


def count_tasks_of(loop: asyncio.AbstractEventLoop) -> None:
    """Count the tasks of this loop at every scrape."""
    TASKS.set_function(lambda: len(asyncio.all_tasks(loop)))


def forget_tasks() -> None:
    """Count no tasks any more, because the loop has ended."""
    TASKS.set_function(lambda: 0.0)
