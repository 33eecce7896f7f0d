"""When a TrainJob has to end, and when it is deleted: `activeDeadlineSeconds` and `ttlSecondsAfterFinished`. Pure.

- The deadline counts from the creation of the TrainJob, and anew whenever it is resumed (when the controller saw the
  resume); the clock stands still while the TrainJob is suspended.
- A finished TrainJob is deleted, with everything that belongs to it, when its time to live has passed since it finished
  (KEP-2899). What the TrainJob says counts, else what its runtime says; without either it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from trainmaster.controller.kube.clock import parse_time
from trainmaster.runtime.api import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from trainmaster.runtime.api.constants import FINAL_CONDITIONS, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject


def seconds_to_deadline(job: TrainJob, now: datetime) -> float | None:
    """Compute the seconds until an unfinished TrainJob exceeds its deadline; zero or less: it has; None: it
    never will.
    """
    if not job.spec.active_deadline_seconds or job.spec.suspend or job.is_finished:
        return None
    suspended = job.status.condition(SUSPENDED)
    if suspended and suspended.status == "True":
        # The resume has not been noted yet: the clock starts when this reconcile notes it.
        return float(job.spec.active_deadline_seconds)
    resumed = _moment(suspended.last_transition_time) if suspended else None
    start = resumed or _moment(job.metadata.creation_timestamp)
    if start is None:
        return None
    # In seconds, because the calendar may end before the deadline does.
    return job.spec.active_deadline_seconds - (now - start).total_seconds()


def ttl_after_finished(job: TrainJob, runtime: TrainingRuntime | ClusterTrainingRuntime | None) -> int | None:
    """Return how many seconds a TrainJob is kept after its end; None: for ever."""
    if job.spec.ttl_seconds_after_finished is not None:
        return job.spec.ttl_seconds_after_finished
    policy = runtime.spec.run_policy if runtime else None
    return policy.ttl_seconds_after_finished if policy else None


def seconds_to_expiry(conditions: Iterable[JsonObject], ttl: int | None, now: datetime) -> float | None:
    """Compute the seconds until a finished TrainJob, kept for `ttl` of them, may go; zero or less: now; None: never.

    Args:
        conditions: Those of the TrainJob, which say when it ended.
        ttl: For how many seconds it is kept; None: for ever.
        now: The time.
    """
    if ttl is None:
        return None
    ends = [
        _moment(condition.get("lastTransitionTime"))
        for condition in conditions
        if condition.get("type") in FINAL_CONDITIONS and condition.get("status") == "True"
    ]
    end = min((moment for moment in ends if moment is not None), default=None)
    # In seconds, because the calendar may end before the job does.
    return None if end is None else ttl - (now - end).total_seconds()


def _moment(text: str | None) -> datetime | None:
    """Read a time of an object; None if it has none there, or something else."""
    try:
        return parse_time(text or "")
    except ValueError:
        return None
