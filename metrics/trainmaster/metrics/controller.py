"""The families of the controllers, and of leader election.

Guarantees:
- K-8: those of reconciles are the `controller_runtime_reconcile_*` families under the names of controller-runtime.
- K-7: `controller_series` creates every series of a controller at zero, for each result, so that rates work from the
  first scrape.
- K-11: those of the election are the `leader_election_*` families under the names of client-go and controller-runtime;
  constructing `LeaderMetrics` publishes 0 (not the leader) before the first election.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Counter, Gauge, Histogram

Result: TypeAlias = Literal["error", "requeue_after", "requeue", "success"]
"""How one reconcile ended."""

_BUCKETS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
)  # fmt: skip

RECONCILES = Counter(
    "controller_runtime_reconcile_total", "Reconciles by result", ("controller", "result"), registry=REGISTRY
)
ERRORS = Counter(
    "controller_runtime_reconcile_errors_total", "Reconciles that failed", ("controller",), registry=REGISTRY
)
TERMINAL_ERRORS = Counter(
    "controller_runtime_terminal_reconcile_errors_total", "Reconciles that failed and are not tried again",
    ("controller",), registry=REGISTRY,
)  # fmt: skip
PANICS = Counter(
    "controller_runtime_reconcile_panics_total", "Reconciles that ended with an unforeseen exception",
    ("controller",), registry=REGISTRY,
)  # fmt: skip
TIMEOUTS = Counter(
    "controller_runtime_reconcile_timeouts_total", "Reconciles that were cancelled because they took too long",
    ("controller",), registry=REGISTRY,
)  # fmt: skip
DURATION = Histogram(
    "controller_runtime_reconcile_time_seconds", "How long one reconcile took", ("controller",),
    buckets=_BUCKETS, registry=REGISTRY,
)  # fmt: skip
MAX_CONCURRENT = Gauge(
    "controller_runtime_max_concurrent_reconciles", "Reconciles that may run at once", ("controller",),
    registry=REGISTRY,
)  # fmt: skip
ACTIVE_WORKERS = Gauge(
    "controller_runtime_active_workers", "Reconciles that run now", ("controller",), registry=REGISTRY
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSeries:
    """The series of one controller."""

    reconciles: Mapping[Result, Counter]
    errors: Counter
    terminal_errors: Counter
    panics: Counter
    timeouts: Counter
    duration: Histogram
    max_concurrent: Gauge
    active_workers: Gauge


def controller_series(name: str) -> ControllerSeries:
    """Create, at zero, and return every series of the controller called `name`."""
    results: tuple[Result, ...] = get_args(Result)
    return ControllerSeries(
        reconciles={result: RECONCILES.labels(name, result) for result in results},
        errors=ERRORS.labels(name),
        terminal_errors=TERMINAL_ERRORS.labels(name),
        panics=PANICS.labels(name),
        timeouts=TIMEOUTS.labels(name),
        duration=DURATION.labels(name),
        max_concurrent=MAX_CONCURRENT.labels(name),
        active_workers=ACTIVE_WORKERS.labels(name),
    )


MASTER_STATUS = Gauge(
    "leader_election_master_status", "1 while this process holds the lease, else 0", ("name",), registry=REGISTRY
)
SLOW_PATHS = Counter(
    "leader_election_slowpath_total", "Renewals that had to read the lease first", ("name",), registry=REGISTRY
)


class LeaderMetrics:
    """The series of one lease."""

    def __init__(self, name: str) -> None:
        self._status = MASTER_STATUS.labels(name)
        self._slow_paths = SLOW_PATHS.labels(name)
        self._status.set(0)

    def leading(self, *, now: bool) -> None:
        """Publish whether this process leads now."""
        self._status.set(1 if now else 0)

    def slow_path(self) -> None:
        """A renewal could not use the cached lease."""
        self._slow_paths.inc()
