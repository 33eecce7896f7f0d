"""Deadlines: `spec.activeDeadlineSeconds` of a TrainJob.

The clock starts when the TrainJob is created and again whenever it is resumed (when the controller saw the resume); it
stands still while the TrainJob is suspended.
"""

from __future__ import annotations

from datetime import UTC, datetime

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.api.constants import SUSPENDED


def parse_time(text: str | None) -> datetime | None:
    """Read an RFC 3339 time, also in the spellings of other writers; None if it is no time."""
    try:
        moment = datetime.fromisoformat((text or "").upper())
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


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
    resumed = parse_time(suspended.last_transition_time) if suspended else None
    start = resumed or parse_time(job.metadata.creation_timestamp)
    if start is None:
        return None
    # In seconds, because the calendar may end before the deadline does.
    return job.spec.active_deadline_seconds - (now - start).total_seconds()
