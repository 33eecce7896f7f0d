"""Conditions of a Job: how a decided end is written down, in the order that API validation demands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.objects import condition_of
from trainmaster.runtime.jsontree import JsonObject

SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
FAILURE_TARGET = "FailureTarget"
COMPLETE = "Complete"
FAILED = "Failed"
SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decided end of a Job, which it reaches when its last pod is gone."""

    succeeded: bool
    reason: str
    message: str

    @property
    def interim_condition(self) -> str:
        """The condition that says: decided, pods may still be ending."""
        return SUCCESS_CRITERIA_MET if self.succeeded else FAILURE_TARGET

    @property
    def terminal_condition(self) -> str:
        """The condition that says: over."""
        return COMPLETE if self.succeeded else FAILED


def interim_outcome(job: JsonObject) -> Outcome | None:
    """Return the end that was decided earlier; it is never reconsidered."""
    conditions = job.get("status", {}).get("conditions") or ()
    for kind in (SUCCESS_CRITERIA_MET, FAILURE_TARGET):
        condition = condition_of(conditions, kind)
        if condition is not None and condition["status"] == "True":
            return Outcome(kind == SUCCESS_CRITERIA_MET, condition.get("reason", ""), condition.get("message", ""))
    return None


def finished_condition(job: JsonObject) -> JsonObject | None:
    """Return the condition Complete or Failed of a finished Job."""
    for condition in job.get("status", {}).get("conditions") or ():
        if condition["type"] in {COMPLETE, FAILED} and condition["status"] == "True":
            found: JsonObject = condition
            return found
    return None


def set_condition(
    conditions: list[JsonObject], kind: str, status: bool, *, reason: str, message: str, now: datetime
) -> bool:
    """Add or change a condition in a private list; a False one is not added. Tells whether its status changed."""
    text = "True" if status else "False"
    moment = timestamp(now)
    new: JsonObject = {
        "type": kind,
        "status": text,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }
    for position, condition in enumerate(conditions):
        if condition["type"] == kind:
            if condition["status"] == text:
                return False
            conditions[position] = new
            return True
    if status:
        conditions.append(new)
    return status
