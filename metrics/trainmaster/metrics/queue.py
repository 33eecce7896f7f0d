"""The `workqueue_*` families under the names of client-go and controller-runtime.

Guarantees:
- W-9: how long a key waited is counted from the moment at which it became ready first, however often it is added;
  but not from before the workers start: in a replica that stands by, keys wait for the lease.
- W-30: `workqueue_depth` carries a priority label, which after 25 distinct priorities becomes one catch-all value.
- W-31: names and buckets as upstream; the labels `name` and `controller` have the same value. The two gauges about
  running items are computed when they are scraped instead of twice a second.
- W-32: every addition with a delay counts as a retry, once; it is no count of errors.
- K-7: constructing `WorkQueueMetrics` creates every series of that queue at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Counter, Gauge, Histogram

_LABELS = ("name", "controller")
_BUCKETS = tuple(1e-8 * 10**exponent for exponent in range(12))
PRIORITIES_AT_MOST = 25
TOO_MANY_PRIORITIES = "exceeded_cardinality_limit"

DEPTH = Gauge("workqueue_depth", "Keys that are ready to be handed out", (*_LABELS, "priority"), registry=REGISTRY)
ADDS = Counter("workqueue_adds_total", "Keys that became ready", _LABELS, registry=REGISTRY)
RETRIES = Counter("workqueue_retries_total", "Additions that carried a delay", _LABELS, registry=REGISTRY)
QUEUE_DURATION = Histogram(
    "workqueue_queue_duration_seconds", "How long keys were ready before a worker took them", _LABELS,
    buckets=_BUCKETS, registry=REGISTRY,
)  # fmt: skip
WORK_DURATION = Histogram(
    "workqueue_work_duration_seconds", "How long workers took for one key", _LABELS,
    buckets=_BUCKETS, registry=REGISTRY,
)  # fmt: skip
UNFINISHED = Gauge(
    "workqueue_unfinished_work_seconds", "Seconds of work in progress, summed over the running keys", _LABELS,
    registry=REGISTRY,
)  # fmt: skip
LONGEST_RUNNING = Gauge(
    "workqueue_longest_running_processor_seconds", "Seconds since the oldest running key was taken", _LABELS,
    registry=REGISTRY,
)  # fmt: skip


class WorkQueueMetrics:
    """The series of one queue; the queue calls these methods and knows no name."""

    def __init__(self, name: str) -> None:
        labels = (name, name)
        self._labels = labels
        self._depths: dict[int, Gauge] = {}
        self._adds = ADDS.labels(*labels)
        self.retries = RETRIES.labels(*labels)
        self._queue_duration = QUEUE_DURATION.labels(*labels)
        self.work_duration = WORK_DURATION.labels(*labels)
        self._unfinished = UNFINISHED.labels(*labels)
        self._longest_running = LONGEST_RUNNING.labels(*labels)
        self._depth(0)

    def queued(self, priority: int) -> None:
        """A key became ready."""
        self._adds.inc()
        self._depth(priority).inc()

    def moved(self, old_priority: int, new_priority: int) -> None:
        """A ready key changed its priority."""
        self._depth(old_priority).dec()
        self._depth(new_priority).inc()

    def dropped(self, priority: int) -> None:
        """A ready key left the queue without being worked on, because the queue was shut down."""
        self._depth(priority).dec()

    def taken(self, priority: int, waited: float) -> None:
        """A worker took a key that had been ready for `waited` seconds."""
        self._depth(priority).dec()
        self._queue_duration.observe(waited)

    def follow_running(self, ages: Callable[[], Sequence[float]]) -> None:
        """Compute the gauges about running keys from `ages`, which gives the age of each, at every scrape."""
        self._unfinished.set_function(lambda: sum(ages()))
        self._longest_running.set_function(lambda: max(ages(), default=0.0))

    def _depth(self, priority: int) -> Gauge:
        depth = self._depths.get(priority)
        if depth is None:
            is_new = len(self._depths) < PRIORITIES_AT_MOST
            depth = DEPTH.labels(*self._labels, str(priority) if is_new else TOO_MANY_PRIORITIES)
            if is_new:
                self._depths[priority] = depth
        return depth
