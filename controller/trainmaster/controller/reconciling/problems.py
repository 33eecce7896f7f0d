"""What stands in the way of a job, and how its owner and the logs are told: a condition, an event, a log line.

Guarantees:
- An unchanged problem is reported once. In other words it is reported again: at once if the earlier ones were found
  twice, else after `REPORT_INTERVAL`. So words that differ on every try are not written on every try.
- M-11: a plugin, or a server, may quote a credential; what owners get to read has none.
- F-8: nothing waits for an event, and nothing is decided from one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from trainmaster.controller.conditions import BLOCKED
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.reconciling.write_backoff import FieldConflict
from trainmaster.controller.redaction import redact
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

EVENT_ACTION: Final = "Reconciling"

REPORT_INTERVAL: Final = 30.0
"""Seconds before a problem is reported again whose words differ on every try. Messages of servers hold ports, times and
request ids; and each write of a status enqueues the TrainJob, past its backoff.
"""

_EVENT_TEXT_LIMIT: Final = 950  # bytes; the whole note may have 1024
_CONDITION_MESSAGE_LIMIT: Final = 32_768  # metav1.Condition


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a job cannot be built at the moment, in the words that its owner gets to read."""

    reason: str
    """Condition reason, CamelCase."""

    message: str

    retry: bool = True
    """Whether trying again may help although no watched object changes."""

    def condition(self) -> dict[str, str]:
        """The condition that tells the owner."""
        message = redact(self.message)[:_CONDITION_MESSAGE_LIMIT]
        return {"type": BLOCKED, "status": "True", "reason": self.reason, "message": message}

    def event_note(self, kind: str) -> str:
        """The note of the event that tells the owner of an object of that kind."""
        encoded = redact(self.message).encode("utf-8", "replace")
        text = encoded[:_EVENT_TEXT_LIMIT].decode("utf-8", "ignore")
        ending = " ..." if len(encoded) > _EVENT_TEXT_LIMIT else ""
        return f"{kind} resources reconciliation failed: {text}{ending}"


class NameTaken(Exception):
    """An object of the name exists, is somebody else's, and no cache shows it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def unreadable(kind: str, why: str) -> Problem:
    """Return that an object of a kind, which the API server accepted, cannot be read."""
    return Problem(f"{kind}Invalid", f"the {kind} cannot be read: {why}", retry=False)


def unforeseen(kind: str, error: Exception) -> Problem:
    """Return that an error which nobody foresaw keeps a job of a kind from being worked on."""
    whose = f"an error of Trainmaster or of a plugin for {kind}s keeps the job from being worked on"
    return Problem("InternalError", f"{whose}: {type(error).__name__}: {error}; the log of the manager has more")


@dataclass(slots=True)
class _Report:
    """A problem that was reported."""

    uid: str
    problem: Problem
    at: float
    is_steady: bool = False
    """Whether it was found again in the same words."""


class ProblemReporter:
    """Reports problems as events and log lines; remembers, by key, what it reported last."""

    def __init__(self, recorder: Recorder, clock: Clock, *, kind: str) -> None:
        self._recorder = recorder
        self._clock = clock
        self._kind = kind
        self._reported: dict[str, _Report] = {}

    def keep_wording(self, key: str, raw: JsonObject, problem: Problem | None) -> tuple[Problem | None, float | None]:
        """Return the problem, in its earlier words if those have to do for a while, and the seconds until then."""
        last = self._reported.get(key)
        if problem is None or last is None or last.uid != raw["metadata"]["uid"]:
            return problem, None
        last.is_steady = last.is_steady or last.problem == problem
        left = last.at + REPORT_INTERVAL - self._clock.monotonic()
        if last.is_steady or left <= 0 or last.problem.reason != problem.reason:
            return problem, None
        return last.problem, left

    def report(self, key: str, raw: JsonObject, problem: Problem | None) -> None:
        """Report a problem, unless it was reported already; None means that there is none any more."""
        if problem is None:
            self._reported.pop(key, None)
            return
        uid = raw["metadata"]["uid"]
        last = self._reported.get(key)
        if last is not None and (last.uid, last.problem) == (uid, problem):
            return
        self._reported[key] = _Report(uid, problem, self._clock.monotonic())
        log.warning("the job is blocked", kind=self._kind, reason=problem.reason, message=problem.message)
        reason = f"{self._kind}ResourcesCreationFailed"
        self._recorder.event(
            raw, type="Warning", reason=reason, action=EVENT_ACTION, note=problem.event_note(self._kind)
        )

    def report_conflict(self, raw: JsonObject, what: str, conflict: FieldConflict) -> None:
        """Report that somebody keeps undoing what we write."""
        log.warning(
            "our writes are undone again and again, writing less often from now on",
            object=what,
            fields=conflict.fields,
            managers=conflict.managers,
        )
        note = f"{what} does not stay as Trainmaster writes it, so it is written less often now; in dispute: {conflict}"
        reason = f"{self._kind}ResourceContested"
        self._recorder.event(raw, type="Warning", reason=reason, action=EVENT_ACTION, note=note)

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._reported.pop(key, None)
