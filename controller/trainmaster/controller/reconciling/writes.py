"""What is decided about a job: its writes as data, when to look at it again, what stands in the way. Pure.

Written is in this order: applies and creations (`applier`), the status (`status_writer`), deletions. So an end is
written before what it lets go, and a restart before its failed pod goes. Annotations of the job come before all that,
in a reconcile of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from trainmaster.controller.conditions import NAME_TAKEN
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.runtime.api.meta import ObjectMeta
from trainmaster.runtime.jsontree import JsonObject

GroupVersionKind: TypeAlias = tuple[str, str]
"""API version and kind."""


class Owner(NamedTuple):
    """The job that is reconciled, and that owns what is written for it."""

    metadata: ObjectMeta
    raw: JsonObject
    """It as the cache shows it."""


class Apply(NamedTuple):
    """One object to apply."""

    object: JsonObject
    create: bool = False
    """Whether it is only created, and that by a request which can do nothing else."""

    uid: str | None = None
    """The UID of the object that is brought up to date; None if none was seen."""

    certain: bool = True
    """Whether it changes something for certain; otherwise nobody can tell before it was done once (see `drift`)."""

    optional: bool = False
    """Whether a refusal is an answer, and nothing stands in the way because of it."""

    at_least: JsonObject | None = None
    """A merge patch with the part of it that cannot wait, for the case that the whole is refused."""


@dataclass(frozen=True, slots=True)
class Create:
    """A pod or a Service to create, which is made when it is its turn: a thousand at once would hold everybody up."""

    kind: str
    name: str
    label: str
    """By which it is watched."""

    make: Callable[[], JsonObject]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job, to be recorded once what it tells of has been written."""

    reason: str
    note: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(slots=True)
class Decision(ABC):
    """What a reconcile is to do."""

    annotations: dict[str, str] = field(default_factory=dict)
    """Of the job itself: what they say is written before anything that follows from it is done."""

    applies: list[Apply] = field(default_factory=list)
    creates: list[Create] = field(default_factory=list)
    deletes: list[JsonObject] = field(default_factory=list)
    """Objects as observed: the UID counts."""

    status_first: bool = False
    """Whether nothing may be deleted before the status tells of it."""

    waits_for_dependents: bool = False
    """Whether what is deleted stays until all that it owns is gone."""

    is_partial: bool = False
    """Whether more is to be created as soon as this is."""

    events: list[JobEvent] = field(default_factory=list)
    """What happens beside the status."""

    status_events: list[JobEvent] = field(default_factory=list)
    """What the status tells, as soon as it is written."""

    problem: Problem | None = None
    """What prevents more of it."""

    waiting: bool = False
    """Whether an object of an earlier job of the name has to disappear before anything can be built; no fault of this
    one.
    """

    due: float | None = None
    """Seconds until something is due although nothing changes."""

    held_for: float | None = None
    """For how many seconds nothing is to be written at all, since something is about to be known."""

    rests_for: float = 0.0
    """For how many seconds the job is not looked at again, whatever happens to it."""

    expires_in: float | None = None
    """Seconds until a finished job has outlived its time to live; zero or less: it has; None: it never will."""

    settles: bool = False
    """Whether nothing is left to do when all of it is done, so that events of what was written need no reconcile."""

    @abstractmethod
    def status(self, problem: Problem | None, *, now: str) -> JsonObject:
        """Return the status that follows, given what stands in the way after all."""

    def look_again(self, *dues: float | None) -> None:
        """Note that something is due in so many seconds; None: nothing is."""
        self.due = min((each for each in (self.due, *dues) if each is not None), default=None)

    @property
    def is_stuck(self) -> bool:
        """Whether nothing can be created now."""
        return self.problem is not None or self.waiting

    @property
    def is_due(self) -> bool:
        """Whether something is due right now."""
        return any(each is not None and each <= 0 for each in (self.due, self.expires_in))

    @property
    def is_expired(self) -> bool:
        """Whether the job itself is to be deleted, when nothing of it is any more."""
        return self.expires_in is not None and self.expires_in <= 0 and not self.deletes


def name_taken(kind: str, name: str, owner: str) -> Problem:
    """Return that an object of somebody else has the name of one that belongs to a job of the kind `owner`."""
    job = owner if owner == "TrainJob" else "job"
    told = f'{kind} "{name}" exists and does not belong to this {owner}; delete it or rename the {job}'
    return Problem(NAME_TAKEN, told)
