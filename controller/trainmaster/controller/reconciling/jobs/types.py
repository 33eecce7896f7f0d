"""What a plan consists of: the writes of one reconcile of a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trainmaster.controller.reconciling.jobs.status import JobEvent, StatusUpdate
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.runtime.jsontree import JsonObject

MOST_CREATIONS: Final = 1000
"""Bounds the memory of one plan; 32 at a time, these take seconds."""


@dataclass(frozen=True, slots=True)
class Apply:
    """One object to apply; `uid` is that of the one which is brought up to date, None if none was seen."""

    object: JsonObject
    uid: str | None = None


@dataclass(frozen=True, slots=True)
class Creation:
    """A pod or a Service to create, which is made when it is its turn: a thousand at once would hold everybody up."""

    kind: str
    name: str
    make: Callable[[], JsonObject]


@dataclass(slots=True)
class Plan:
    """The writes of one reconcile: applies, creates, the status, deletes, in this order."""

    update: StatusUpdate
    """The status that follows, as long as nothing goes wrong with the writes."""

    applies: list[Apply] = field(default_factory=list)
    creates: list[Creation] = field(default_factory=list)
    """Pods and Services; of a large job the first `MOST_CREATIONS` that it lacks."""

    deletes: list[JsonObject] = field(default_factory=list)
    """Objects as observed: the UID counts."""

    events: list[JobEvent] = field(default_factory=list)
    """What happens beside the status."""

    problem: Problem | None = None
    waiting: bool = False
    """Whether an object of an earlier job of the name has to disappear; no fault of this one."""

    due: float | None = None
    """Seconds until something is due although nothing changes."""

    is_partial: bool = False
    """Whether more is to be created as soon as this is."""

    replaced: list[str] = field(default_factory=list)
    """Names of failed pods that are deleted to be replaced."""

    expired: bool = False
    """Whether the job has outlived its time to live, and is to be deleted."""

    @property
    def is_stuck(self) -> bool:
        """Whether nothing can be created now."""
        return self.problem is not None or self.waiting
