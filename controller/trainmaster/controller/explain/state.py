"""In which state a job is, in one word, from its conditions and its pods."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from trainmaster.controller.explain.view import JobView


class State(StrEnum):
    """States of jobs of all kinds."""

    DELETED = "Deleted"
    COMPLETE = "Complete"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    WAITING = "Waiting"
    """It has been created; not all of its pods have run yet."""

    RESTARTING = "Restarting"
    """It has run, and not all of its pods run now."""

    RUNNING = "Running"


@dataclass(frozen=True, slots=True)
class JobState:
    """A state, and since when."""

    state: State
    since: datetime | None


def state_of(view: JobView) -> JobState:
    """Return the state of a job."""
    return JobState(State.DELETED if view.is_deleted else State.WAITING, view.created)
