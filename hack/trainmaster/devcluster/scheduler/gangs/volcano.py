"""The status of a PodGroup of Volcano (`scheduling.volcano.sh`). Pure.

Pending: the queue is closed, or it or the cluster has too little room; every group is Pending first. Inqueue: the
group may start, and who makes its pods may do so now. Running: enough pods have a node. Unknown: some run and the rest
cannot. Completed: all that started have succeeded.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.objects import condition_of
from trainmaster.devcluster.events import Note
from trainmaster.devcluster.scheduler.gangs.plan import GangPlan
from trainmaster.devcluster.scheduler.gangs.pod_group import PodGroupMembers, PodGroupRequirement, StatusUpdate
from trainmaster.runtime.jsontree import JsonObject

_UNSCHEDULABLE, _SCHEDULED = "Unschedulable", "Scheduled"
_READY = "tasks in gang are ready to be scheduled"


def next_status(
    group: JsonObject,
    members: PodGroupMembers,
    requirement: PodGroupRequirement,
    plan: GangPlan,
    *,
    now: datetime,
) -> StatusUpdate:
    """Return the status that follows from the pods of a group."""
    known: JsonObject = group.get("status") or {}
    if known.get("phase") == "Completed" and not members.is_active:
        return StatusUpdate(known)  # what its pods did stays true when they are cleaned away
    counts = {"running": members.running, "succeeded": len(members.succeeded), "failed": len(members.failed)}
    status = {key: value for key, value in known.items() if key not in counts}
    status |= {name: count for name, count in counts.items() if count}
    update = StatusUpdate(status)
    complete = bool(members.scheduled) and requirement.is_met_by(members.scheduled)
    status["phase"] = _phase(known.get("phase"), members, complete=complete, may_leave=not plan.enqueue_problem)
    if complete:
        _set_condition(update, group, _SCHEDULED, reason=_READY, message="", now=now)
    elif plan.state != "Complete" and (plan.enqueue_problem or status["phase"] != "Pending"):
        reason, message = _explain(members, requirement, plan)
        changed = _set_condition(update, group, _UNSCHEDULABLE, reason=reason, message=message, now=now)
        if changed and plan.enqueue_problem:
            update.notes.append(Note("Normal", _UNSCHEDULABLE, plan.enqueue_problem))
    return update


def _phase(known: str | None, members: PodGroupMembers, *, complete: bool, may_leave: bool) -> str:
    if complete:
        return "Running" if members.bound or members.waiting else "Completed"
    if members.running:
        return "Unknown"
    return "Inqueue" if known == "Inqueue" or (known == "Pending" and may_leave) else "Pending"


def _explain(members: PodGroupMembers, requirement: PodGroupRequirement, plan: GangPlan) -> tuple[str, str]:
    if not members.present:
        text = (
            f"{requirement.min_member}/0 tasks in gang unschedulable: pod group is not ready, "
            f"{requirement.min_member} minAvailable"
        )
        return "NotEnoughResources", f"{text}; {plan.enqueue_problem}" if plan.enqueue_problem else text
    if plan.state == "TooFewPods":
        text = (
            f"Not enough valid tasks for gang-scheduling, valid: {len(members.present)}, min: {requirement.min_member}"
        )
        return "NotEnoughTasks", text
    lacking = requirement.min_member - len(members.scheduled)
    text = (
        f"{lacking}/{len(members.present)} tasks in gang unschedulable: pod group is not ready, "
        f"{len(members.waiting)} Pending, {requirement.min_member} minAvailable; {plan.message}"
    )
    return "NotEnoughResources", text


def _set_condition(
    update: StatusUpdate, group: JsonObject, kind: str, *, reason: str, message: str, now: datetime
) -> bool:
    """Make one of the two conditions true and the other one, if it is there, false; tells whether that is new."""
    conditions: list[JsonObject] = [dict(each) for each in update.status.get("conditions") or ()]
    opposite = _SCHEDULED if kind == _UNSCHEDULABLE else _UNSCHEDULABLE
    moment = timestamp(now)
    known = condition_of(conditions, kind)
    fields = {"status": "True", "reason": reason, **({"message": message} if message else {})}
    changed = known is None or {key: known.get(key) for key in ("status", "reason", "message")} != {
        "message": None,
        **fields,
    }
    if changed:
        attempt = uuid.uuid5(uuid.UUID(group["metadata"]["uid"]), f"{kind} {reason} {moment}")
        new = {"type": kind, **fields, "transitionID": str(attempt), "lastTransitionTime": moment}
        conditions = [each for each in conditions if each["type"] != kind] + [new]
        update.notes.append(Note("Warning" if kind == _UNSCHEDULABLE else "Normal", kind, message or reason))
    other = condition_of(conditions, opposite)
    if other is not None and other["status"] == "True":
        other |= {"status": "False", "lastTransitionTime": moment}
    update.status["conditions"] = conditions
    return changed
