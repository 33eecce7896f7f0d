"""What can stand in the way of a TrainJob, in the words that its owner gets to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BLOCKED: Final = "Blocked"
"""Condition type: true while something keeps the TrainJob from being built; absent otherwise.

It is removed, not set to False, because the Kubeflow SDK takes a job without conditions to be running.
"""

RUNTIME_NOT_FOUND: Final = "RuntimeNotFound"
"""Condition reason; `trainmaster run` looks for it, because waiting does not help then."""

EVENT_REASON: Final = "TrainJobResourcesCreationFailed"
EVENT_ACTION: Final = "Reconciling"
CONTESTED_REASON: Final = "TrainJobResourceContested"

_EVENT_TEXT_LIMIT: Final = 950  # bytes; the whole note may have 1024
_CONDITION_MESSAGE_LIMIT: Final = 32_768  # metav1.Condition


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a TrainJob cannot be built at the moment."""

    reason: str
    """Condition reason, CamelCase."""

    message: str

    retry: bool = True
    """Whether trying again may help although no watched object changes."""

    def condition(self) -> dict[str, str]:
        """The condition that tells the owner."""
        message = self.message[:_CONDITION_MESSAGE_LIMIT]
        return {"type": BLOCKED, "status": "True", "reason": self.reason, "message": message}

    def note(self) -> str:
        """The note of the event that tells the owner."""
        encoded = self.message.encode("utf-8", "replace")
        text = encoded[:_EVENT_TEXT_LIMIT].decode("utf-8", "ignore")
        ending = " ..." if len(encoded) > _EVENT_TEXT_LIMIT else ""
        return f"TrainJob resources reconciliation failed: {text}{ending}"
