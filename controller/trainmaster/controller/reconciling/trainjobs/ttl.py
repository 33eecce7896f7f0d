"""Lifetimes: `ttlSecondsAfterFinished` of a TrainJob (KEP-2899).

A finished TrainJob is deleted, with everything that belongs to it, when its time to live has passed since it finished.
What the TrainJob says counts, else what its runtime says; without either it is kept. Pure.
"""

from __future__ import annotations

from datetime import datetime

from trainmaster.controller.reconciling.trainjobs.deadlines import moment_of
from trainmaster.runtime.api import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from trainmaster.runtime.api.constants import FINAL_CONDITIONS


def time_to_live(job: TrainJob, runtime: TrainingRuntime | ClusterTrainingRuntime | None) -> int | None:
    """Return how many seconds a TrainJob is kept after its end; None: for ever."""
    if job.spec.ttl_seconds_after_finished is not None:
        return job.spec.ttl_seconds_after_finished
    policy = runtime.spec.run_policy if runtime else None
    return policy.ttl_seconds_after_finished if policy else None


def seconds_to_expiry(job: TrainJob, seconds: int | None, now: datetime) -> float | None:
    """Compute the seconds until a finished TrainJob, kept for `seconds`, may go; zero or less: now; None: never."""
    ends = [
        moment_of(condition.last_transition_time)
        for condition in job.status.conditions
        if condition.type in FINAL_CONDITIONS and condition.is_true
    ]
    end = min((moment for moment in ends if moment is not None), default=None)
    if seconds is None or end is None:
        return None
    # In seconds, because the calendar may end before the job does.
    return seconds - (now - end).total_seconds()
