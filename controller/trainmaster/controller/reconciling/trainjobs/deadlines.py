"""Deadlines: `spec.activeDeadlineSeconds` of a TrainJob.

The clock starts when the TrainJob is created and again whenever it is resumed (when the controller saw the resume); it
stands still while the TrainJob is suspended.
"""

from __future__ import annotations

from datetime import datetime

from trainmaster.controller.kube.clock import parse_time
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.api.constants import SUSPENDED


def moment_of(text: str | None) -> datetime | None:
    """Read a time of an object; None if it has none there, or something else."""
    try:
        return parse_time(text or "")
    except ValueError:
        return None


def seconds_left(job: TrainJob, now: datetime) -> float | None:
    """Compute the seconds until an unfinished TrainJob exceeds its deadline; zero or less: it has; None: it
    never will.
    """
    if not job.spec.active_deadline_seconds or job.spec.suspend or job.is_finished:
        return None
    suspended = job.status.condition(SUSPENDED)
    if suspended and suspended.status == "True":
        # The resume has not been noted yet: the clock starts when this reconcile notes it.
        return float(job.spec.active_deadline_seconds)
    resumed = moment_of(suspended.last_transition_time) if suspended else None
    start = resumed or moment_of(job.metadata.creation_timestamp)
    if start is None:
        return None
    # In seconds, because the calendar may end before the deadline does.
    return job.spec.active_deadline_seconds - (now - start).total_seconds()
