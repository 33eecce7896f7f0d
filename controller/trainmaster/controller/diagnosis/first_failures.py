"""The first failures of a TrainJob, and its condition ContainerFailed, in the words that its owner gets to read. Pure.

Of all failures of an attempt the first is the one that counts, and is told: the other ranks fail because they lost it.
An attempt is a run of a container, of a restart of the whole workload; it is over when the workload is ready again.

Guarantees:
- Nothing is told twice, except that an earlier failure of an attempt, which became known later, takes its place.
- What is told is bounded: the last `ATTEMPTS` attempts, each with the last words of its container.
- M-11: it has no credentials, although a program may print some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from trainmaster.controller.conditions import CONTAINER_FAILED, find_condition, is_true, stored_status
from trainmaster.controller.container_failures import (
    OOM_KILLED,
    STATUS_UNKNOWN,
    ContainerFailure,
    meaning_of,
    node_title,
)
from trainmaster.controller.explain.causes.failures.containers import cause_of_failure, ended_first, told_first
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.last_words import failed_rank, last_words
from trainmaster.runtime.api.constants import FAILED, JOBSET_FAILED
from trainmaster.runtime.jsontree import JsonObject

ATTEMPTS: Final = 5

_NO_REASON: Final = "Error"  # what the kubelet writes for an exit code that says nothing
_REASON: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")  # metav1.Condition
_ATTEMPT: Final = re.compile(r"attempt \d+(?:, restart \d+)?(?=: )")
_TELLING: Final = frozenset({OOM_KILLED, STATUS_UNKNOWN})
"""Reasons that no last words explain."""

_LOST_A_PEER: Final = "it lost another rank"
_WAS_REFUSED: Final = "nothing listened where it connected to"

_UNSAID: Final = "with terminationMessagePolicy: FallbackToLogsOnError its last lines would stand here"

Identity = tuple[str, str, int]
"""UID of the pod, container, and how often it had been restarted."""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The first failure of one attempt."""

    text: str
    """One line, which begins with the attempt."""

    reason: str
    """Condition reason: the cause."""

    precedence: tuple[bool, tuple[str, bool, int]] | None = None
    """That of the failure; None if an earlier process told of it."""

    @property
    def attempt(self) -> str:
        """The attempt, as the text calls it."""
        found = _ATTEMPT.match(self.text)
        return found[0] if found else ""

    def gives_way_to(self, failure: ContainerFailure, text: str) -> bool:
        """Whether another failure is the likelier cause; or the same, of which a text tells who had ended first."""
        if self.precedence is None or self.precedence != failure.precedence:
            return self.precedence is not None and failure.precedence < self.precedence
        return text not in ("", self.text)


@dataclass(slots=True)
class FirstFailures:
    """What has been told of the failures of one TrainJob."""

    told: list[FirstFailure] = field(default_factory=list)
    """In the order in which it became known, the last `ATTEMPTS`."""

    is_open: bool = False
    """Whether the workload is not ready since."""

    unread: str = ""
    """Why the first failure is not known, if the pods could not be read."""

    _open_attempts: set[str] = field(default_factory=set)
    _over: set[Identity] = field(default_factory=set)
    """Failures of attempts that are over, as far as pods still tell of them."""

    _seen: set[Identity] = field(default_factory=set)

    @property
    def lacks_peer(self) -> bool:
        """Whether the last failure is one of a rank that lost another one."""
        return bool(self.told and self.told[-1].precedence and self.told[-1].precedence[0])

    def add(
        self, failures: Iterable[ContainerFailure], replaced: Mapping[str, int], view: JobView | None = None
    ) -> list[FirstFailure]:
        """Take the failures that all pods tell of by now; returns what is to be told of them.

        Args:
            replaced: By UID of a pod, how many pods had its place before, if any had.
            view: The job with its pods, which tell who had done its work.
        """
        known = {(each.pod_uid, each.container, each.run): each for each in failures if not each.stopped}
        self._seen = set(known)
        self._over &= self._seen
        first: dict[str, ContainerFailure] = {}
        for identity, failure in known.items():
            attempt = _attempt(failure, replaced)
            if identity not in self._over and (attempt not in first or failure.precedence < first[attempt].precedence):
                first[attempt] = failure
        news = []
        for attempt, failure in sorted(first.items(), key=lambda item: item[1].order):
            told = next((each for each in reversed(self.told) if each.attempt == attempt), None)
            done = [] if view is None else ended_first(view, failure)
            text = f"{attempt}: {describe(failure, done)}"
            is_open = attempt in self._open_attempts
            if is_open and (told is None or not told.gives_way_to(failure, text if done else "")):
                continue
            new = FirstFailure(text, cause_of_failure(failure).value, failure.precedence)
            if is_open and told is not None:
                self.told[self.told.index(told)] = new
            else:
                self.told = [*self.told[1 - ATTEMPTS :], new]
            self._open_attempts.add(attempt)
            news.append(new)
        self.is_open = self.is_open or bool(news)
        return news

    def close(self) -> None:
        """Note that the workload is ready again: whatever fails from now on is news."""
        self.is_open = False
        self._open_attempts.clear()
        self._over |= self._seen

    def reopen(self) -> None:
        """Note that the workload has failed after all, perhaps before anything more was seen."""
        self.is_open = bool(self.told)

    def skip(self, failures: Iterable[ContainerFailure]) -> None:
        """Note failures that are over, and of which an earlier process has told if anybody did."""
        self._over |= {(each.pod_uid, each.container, each.run) for each in failures}

    @property
    def condition(self) -> JsonObject | None:
        """The condition that tells the owner, while there is something to tell."""
        if not self.is_open or not self.told:
            return None
        message = "\n".join(each.text for each in self.told)
        return {"type": CONTAINER_FAILED, "status": "True", "reason": self.told[-1].reason, "message": message}

    @property
    def cause(self) -> str:
        """The first failure of the last attempt, which is why the workload has failed if it has; or why none is known.

        It is empty if there is nothing to tell.
        """
        return self.told[-1].text if self.is_open and self.told else self.unread

    def is_untold(self, conditions: Iterable[JsonObject]) -> bool:
        """Tell whether the conditions of a TrainJob lack what there is to tell."""
        text = (self.condition or {}).get("message") or self.unread
        return not any(text in str(each.get("message")) for each in conditions)


def read_condition(condition: JsonObject) -> FirstFailures:
    """Return what an earlier process told of."""
    reason = condition.get("reason") or _NO_REASON
    lines = str(condition.get("message") or "").splitlines()[-ATTEMPTS:]
    told = [FirstFailure(line, reason) for line in lines]
    return FirstFailures(told, is_open=bool(told), _open_attempts={each.attempt for each in told})


def lacks_cause(trainjob: JsonObject, jobset: JsonObject, before: datetime, *, within: float) -> bool:
    """Tell whether the end of a TrainJob was told in so many seconds before a time, without its cause."""
    conditions = trainjob["status"]["conditions"]
    failed = find_condition(conditions, FAILED)
    if failed is None or find_condition(conditions, CONTAINER_FAILED) is not None:
        return False
    at, earliest = str(failed.get("lastTransitionTime")), before - timedelta(seconds=within)
    return time_text(earliest) < at < time_text(before) and is_true(stored_status(jobset)["conditions"], JOBSET_FAILED)


def describe(failure: ContainerFailure, done: Sequence[JsonObject] = ()) -> str:
    """Say in one line what failed where, when and how, and its last words; and which pods had `done` their work."""
    first = f"{told_first(done)}; " if done else ""
    where = f"pod {failure.pod}, container {failure.container}"
    at = f" at {failure.at}" if failure.at else ""
    words = last_words(failure.message)
    reason = failure.reason if _reason(failure) != _NO_REASON else ""
    meaning = meaning_of(failure.exit_code, reason)
    if not reason and failure.lost_a_peer:
        meaning = _WAS_REFUSED if failure.was_refused else _LOST_A_PEER
    why = f" ({': '.join(filter(None, (reason, meaning)))})" if reason or meaning else ""
    unsaid = "" if failure.tells_log or reason in _TELLING else f"; {_UNSAID}"
    end = f": {words}" if words else unsaid
    return f"{first}{_who(failure)} ({where}) failed{at} with exit code {failure.exit_code}{why}{end}"


def _who(failure: ContainerFailure) -> str:
    """Name what failed: the rank that was first, and its node; else the node and its ranks."""
    if failure.rank is None:
        return failure.replicated_job or failure.container
    first = failed_rank(failure.message)
    if first is not None and len(failure.ranks or ()) != 1:
        return f"rank {first} on node {failure.rank}"
    # Parentheses begin what says where.
    return node_title(failure.rank, failure.ranks).replace(" (", ", ").rstrip(")")


def _attempt(failure: ContainerFailure, replaced: Mapping[str, int]) -> str:
    restarts = failure.run + replaced.get(failure.pod_uid, 0)
    return f"attempt {failure.attempt}, restart {restarts}" if restarts else f"attempt {failure.attempt}"


def _reason(failure: ContainerFailure) -> str:
    return failure.reason if _REASON.fullmatch(failure.reason) else _NO_REASON
