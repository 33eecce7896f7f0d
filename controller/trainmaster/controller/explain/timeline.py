"""The timeline of a job: what happened when, the oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from trainmaster.controller.explain.findings import ObjectReference
from trainmaster.controller.explain.view import JobView


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a job."""

    at: datetime
    text: str
    """A few words."""

    object: ObjectReference | None = None
    """What it happened to, if not to the job itself."""


def timeline(view: JobView) -> Sequence[Moment]:
    """Return what happened to a job, as far as its objects tell."""
    created = view.created
    return () if created is None else (Moment(created, f"{view.kind} created"),)
