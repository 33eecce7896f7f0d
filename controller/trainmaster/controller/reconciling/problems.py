"""What stands in the way of a job, and the condition and the event of that (`status_writer` writes them).

Guarantee, M-11: a plugin, or a server, may quote a credential; what owners get to read has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.controller.conditions import BLOCKED
from trainmaster.controller.redaction import redact

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
