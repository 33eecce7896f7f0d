"""The families of jobs of `kubeflow.org/v1`: counters under the names of the Training Operator V1, and their states.

V1-B29: each is counted when the status that says so has been written: once, whatever was the cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Counter, LeaderGauge

JobCounter: TypeAlias = Literal["created", "deleted", "successful", "failed", "restarted"]
"""What a job did: it was seen for the first time, was deleted by its time to live, ended, or replaced failed pods."""

_LABELS: Final = ("job_namespace", "framework")

COUNTERS: Final[Mapping[JobCounter, Counter]] = {
    "created": Counter("training_operator_jobs_created_total", "Jobs created", _LABELS, registry=REGISTRY),
    "deleted": Counter(
        "training_operator_jobs_deleted_total", "Jobs deleted by their time to live", _LABELS, registry=REGISTRY
    ),
    "successful": Counter("training_operator_jobs_successful_total", "Jobs succeeded", _LABELS, registry=REGISTRY),
    "failed": Counter("training_operator_jobs_failed_total", "Jobs failed", _LABELS, registry=REGISTRY),
    "restarted": Counter(
        "training_operator_jobs_restarted_total", "Times that failed pods of a job were replaced", _LABELS,
        registry=REGISTRY,
    ),
}  # fmt: skip


JOBS: Final = LeaderGauge("trainmaster_v1_jobs", "Jobs of kubeflow.org/v1 by state", ("framework", "state"))


class JobsMetrics:
    """Counts the jobs of one framework.

    Args:
        framework: Its name, for instance `pytorch`.
    """

    def __init__(self, framework: str) -> None:
        self._framework = framework

    def count(self, counter: JobCounter, namespace: str) -> None:
        """Count up for a job of a namespace."""
        COUNTERS[counter].labels(namespace, self._framework).inc()
