"""The families of the history of jobs: what is recorded, what is lost, and whether its store can be used.

None of them has a label: they are so many series, however many jobs there are.
"""

from __future__ import annotations

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Counter, Gauge

WRITTEN = Counter(
    "trainmaster_history_records_written_total",
    "Records of jobs that were written to the store of the history, new ones and such that have changed",
    registry=REGISTRY,
)
LOST = Counter(
    "trainmaster_history_records_lost_total",
    "Records of jobs that found the queue of the history full; of jobs that are still there they are made again",
    registry=REGISTRY,
)
PRUNED = Counter(
    "trainmaster_history_records_pruned_total",
    "Records that were removed because of their age, or because there were too many",
    registry=REGISTRY,
)
QUEUED = Gauge(
    "trainmaster_history_queue_depth", "Records of jobs that wait to be written to the history", registry=REGISTRY
)
STORE_FAILING = Gauge(
    "trainmaster_history_store_failing",
    "1 while the store of the history cannot be used, so that nothing is recorded; 0 also where no history is kept",
    registry=REGISTRY,
)
