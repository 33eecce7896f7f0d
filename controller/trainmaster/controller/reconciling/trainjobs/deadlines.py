"""Deadlines: `spec.activeDeadlineSeconds` of a TrainJob.

The clock starts when the TrainJob is created and again whenever it is resumed (when the controller saw the resume); it
stands still while the TrainJob is suspended.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.api.constants import SUSPENDED


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 time as the API writes it."""
    return datetime.fromisoformat(text)


def seconds_left(job: TrainJob, now: datetime) -> float | None:
    """Compute the seconds until an unfinished TrainJob exceeds its deadline; zero or less: it has; None: it
    never will.
    """
    if not job.spec.active_deadline_seconds or job.spec.suspend or job.is_finished:
        return None
    start = job.metadata.creation_timestamp
    suspended = job.status.condition(SUSPENDED)
    if suspended and suspended.status == "True":
        # The resume has not been noted yet: the clock starts when this reconcile notes it.
        return float(job.spec.active_deadline_seconds)
    if suspended and suspended.last_transition_time:
        start = suspended.last_transition_time
    if start is None:
        return None
    deadline = parse_time(start) + timedelta(seconds=job.spec.active_deadline_seconds)
    return (deadline - now).total_seconds()
