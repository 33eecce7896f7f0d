"""Conditions of a JobSet, and the events that go with them.

A condition appears when it first becomes true; one that was never true is absent. Some exclude each other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.objects import condition_of
from trainmaster.devcluster.events import Note
from trainmaster.runtime.jsontree import JsonObject

COMPLETED = "Completed"
FAILED = "Failed"
SUSPENDED = "Suspended"
STARTUP_IN_PROGRESS = "StartupPolicyInProgress"
STARTUP_COMPLETED = "StartupPolicyCompleted"
RESTARTING = "RestartingJobSet"

_OPPOSITE = {STARTUP_IN_PROGRESS: STARTUP_COMPLETED, STARTUP_COMPLETED: STARTUP_IN_PROGRESS}


def finished_condition(status: JsonObject) -> JsonObject | None:
    """Return the condition Completed or Failed from the status of a finished JobSet."""
    for kind in (COMPLETED, FAILED):
        condition = condition_of(status.get("conditions") or (), kind)
        if condition is not None and condition["status"] == "True":
            return condition
    return None


def set_condition(
    status: JsonObject,
    kind: str,
    reason: str,
    message: str,
    *,
    value: bool = True,
    event: Literal["Normal", "Warning"] = "Normal",
    now: datetime,
) -> list[Note]:
    """Set a condition in a private status; returns the event to record if that changed anything."""
    conditions: list[JsonObject] = status.setdefault("conditions", [])
    text = "True" if value else "False"
    new = {
        "type": kind,
        "status": text,
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    known = changed = False
    for position, condition in enumerate(conditions):
        if condition["type"] == kind:
            known = True
            if condition["status"] != text:
                conditions[position] = new
                changed = True
        elif value and condition["type"] == _OPPOSITE.get(kind) and condition["status"] == "True":
            conditions[position] = {**condition, "status": "False"}
            changed = True
    if not known and value:
        conditions.append(new)
        changed = True
    if not conditions:
        del status["conditions"]
    return [Note(event, reason, message)] if changed else []
