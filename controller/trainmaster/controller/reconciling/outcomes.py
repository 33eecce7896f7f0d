"""What a reconcile can end in (K-3), in the words of controller-runtime; `controller` says what follows from each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from trainmaster.controller.kube.rest.errors import ApiError, Forbidden
from trainmaster.controller.reconciling.problems import Problem

UNTIL_GRANTED: Final = 60.0
"""Seconds at most until what failed for want of a right is tried again: no event tells that it was granted."""

UNTIL_FREED: Final = 30.0
"""Seconds at most until a name is tried again that somebody else has: of what is not ours no event tells."""

EXPECTATIONS_RECHECK: Final = 1.0
"""Seconds until expectations are checked again; the events that fulfil them usually come much earlier."""

WAITING_INTERVAL: Final = 5.0
"""Seconds between checks of an object that garbage collection should remove; its deletion is an event as well."""

SHORTEST_REQUEUE: Final = 1.0
LONGEST_REQUEUE: Final = 300.0
"""Seconds until a deadline is checked again: deadlines are moments of the wall clock, which may be set meanwhile."""


def to_requeue(seconds: float | None) -> float | None:
    """Return the seconds until the next reconcile for something that is due in so many seconds."""
    return None if seconds is None else min(max(seconds, SHORTEST_REQUEUE), LONGEST_REQUEUE)


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Reconcile again after some time, even if nothing changes."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ExpectationsPending:
    """The caches do not show our own last writes yet: reconcile again after some time. Says nothing about earlier
    tries."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Requeue:
    """Something stands in the way that may go away: reconcile again with backoff. Not a failure of the controller."""

    reason: str

    at_latest: float | None = None
    """Seconds after which to reconcile again however long the backoff is."""


@dataclass(frozen=True, slots=True)
class TerminalError:
    """An error that trying again cannot mend: nothing is done until something changes."""

    reason: str


Outcome: TypeAlias = Done | RequeueAfter | ExpectationsPending | Requeue | TerminalError
Reconcile: TypeAlias = Callable[[str], Awaitable[Outcome]]
"""Brings one object, named by its key `namespace/name`, to its desired state."""

DONE = Done()


def next_outcome(dues: Iterable[float | None], *, failure: ApiError | None, problem: Problem | None) -> Outcome:
    """Return what a reconcile ends in that has written what it could; `dues` are the seconds until something is due."""
    due = min((each for each in dues if each is not None), default=None)
    if failure is not None:
        if isinstance(failure, Forbidden) and failure.told:
            due = min(due or UNTIL_GRANTED, UNTIL_GRANTED)
        return Requeue(str(failure), at_latest=due)
    if problem is not None and problem.retry:
        return Requeue(problem.message, at_latest=due)
    return DONE if due is None else RequeueAfter(due)


def until_due(look: Callable[[str], Awaitable[float | None]]) -> Reconcile:
    """Make a reconcile of what returns the seconds until it is to be called again."""

    async def reconcile(key: str) -> Outcome:
        due = await look(key)
        return DONE if due is None else RequeueAfter(due)

    return reconcile
