"""The `leader_election_*` families under the names of client-go and controller-runtime (K-11).

Guarantee: constructing `LeaderMetrics` publishes 0 (not the leader) before the first election.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from trainmaster.metrics.registry import REGISTRY

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
