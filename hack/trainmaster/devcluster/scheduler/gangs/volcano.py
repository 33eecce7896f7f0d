"""The status of a PodGroup of Volcano (`scheduling.volcano.sh`). Pure.

Pending: the queue is closed or the cluster has too little room. Inqueue: the group may start. Running: enough pods have
a node. Unknown: some run and the rest cannot. Completed: all that started have succeeded.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.objects import condition_of
from trainmaster.devcluster.events import Note
from trainmaster.devcluster.scheduler.gangs.coscheduling import Progress
from trainmaster.devcluster.scheduler.gangs.members import Roster
from trainmaster.devcluster.scheduler.gangs.plan import Decision, Requirement
from trainmaster.runtime.jsontree import JsonObject

DEFAULT_QUEUE = "default"
_UNSCHEDULABLE, _SCHEDULED = "Unschedulable", "Scheduled"
_READY = "tasks in gang are ready to be scheduled"


def progress_of(
    group: JsonObject, roster: Roster, requirement: Requirement, decision: Decision, *, admitted: bool, now: datetime
) -> Progress:
    """Return the status that follows from the pods of a group; `admitted` says that there would be room for it."""
    known: JsonObject = group.get("status") or {}
    if known.get("phase") == "Completed" and not roster.is_active:
        return Progress(known)  # what its pods did stays true when they are cleaned away
    counts = {"running": roster.running, "succeeded": len(roster.succeeded), "failed": len(roster.failed)}
    status = {key: value for key, value in known.items() if key not in counts}
    status |= {name: count for name, count in counts.items() if count}
    progress = Progress(status)
    complete = bool(roster.held) and requirement.is_met(roster.held)
    status["phase"] = _phase(known.get("phase"), roster, complete=complete, admitted=admitted)
    if complete:
        _set_condition(progress, group, _SCHEDULED, reason=_READY, message="", now=now)
    elif decision.verdict != "Complete":
        reason, message = _explain(roster, requirement, decision)
        _set_condition(progress, group, _UNSCHEDULABLE, reason=reason, message=message, now=now)
    return progress


def _phase(known: str | None, roster: Roster, *, complete: bool, admitted: bool) -> str:
    if complete:
        return "Running" if roster.bound or roster.waiting else "Completed"
    if roster.running:
        return "Unknown"
    return "Inqueue" if admitted or known == "Inqueue" else "Pending"


def _explain(roster: Roster, requirement: Requirement, decision: Decision) -> tuple[str, str]:
    if decision.verdict == "TooFewPods":
        text = f"Not enough valid tasks for gang-scheduling, valid: {len(roster.present)}, min: {requirement.members}"
        return "NotEnoughTasks", text
    lacking = requirement.members - len(roster.held)
    text = (
        f"{lacking}/{len(roster.present)} tasks in gang unschedulable: pod group is not ready, "
        f"{len(roster.waiting)} Pending, {requirement.members} minAvailable; {decision.message}"
    )
    return "NotEnoughResources", text


def _set_condition(
    progress: Progress, group: JsonObject, kind: str, *, reason: str, message: str, now: datetime
) -> None:
    """Make one of the two conditions true and the other one, if it is there, false."""
    conditions: list[JsonObject] = [dict(each) for each in progress.status.get("conditions") or ()]
    opposite = _SCHEDULED if kind == _UNSCHEDULABLE else _UNSCHEDULABLE
    moment = timestamp(now)
    known = condition_of(conditions, kind)
    facts = {"status": "True", "reason": reason, **({"message": message} if message else {})}
    if known is None or {key: known.get(key) for key in ("status", "reason", "message")} != {"message": None, **facts}:
        attempt = uuid.uuid5(uuid.UUID(group["metadata"]["uid"]), f"{kind} {reason} {moment}")
        new = {"type": kind, **facts, "transitionID": str(attempt), "lastTransitionTime": moment}
        conditions = [each for each in conditions if each["type"] != kind] + [new]
        progress.notes.append(Note("Warning" if kind == _UNSCHEDULABLE else "Normal", kind, message or reason))
    other = condition_of(conditions, opposite)
    if other is not None and other["status"] == "True":
        other |= {"status": "False", "lastTransitionTime": moment}
    progress.status["conditions"] = conditions
