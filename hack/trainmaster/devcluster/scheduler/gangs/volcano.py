"""The status of a PodGroup of Volcano (`scheduling.volcano.sh`). Pure.

Pending: the queue is closed, or it or the cluster has too little room; every group is Pending first. Inqueue: the
group may start, and who makes its pods may do so now. Running: enough pods have a node. Unknown: some run and the rest
cannot. Completed: all that started have succeeded.

Whether a PodGroup of Volcano may leave its queue: what the groups before it hold of the queue and the cluster. Pure.

A group that was let in holds what its pods use and, until they have started, at least its `minResources`. So a group
comes in only if all that are in can start, and it beside them. Without `minResources` a group always comes in.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.objects import condition_of
from trainmaster.devcluster.controllers.volcanoqueue import DEFAULT_QUEUE
from trainmaster.devcluster.events import Note
from trainmaster.devcluster.scheduler.gangs.pod_group import (
    GangPlan,
    PodGroupMembers,
    PodGroupRequirement,
    StatusUpdate,
    requirement_of,
)
from trainmaster.devcluster.scheduler.node_info import Snapshot
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests

_UNSCHEDULABLE, _SCHEDULED = "Unschedulable", "Scheduled"
_READY = "tasks in gang are ready to be scheduled"

PENDING, INQUEUE = "Pending", "Inqueue"
QUOTA_EXCEEDED = "queue resource quota insufficient"
CLUSTER_OVERUSED = "resource in cluster is overused"

_ZERO = Quantity.parse(0)


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


class Neighbour(NamedTuple):
    """Another group, with its pods."""

    group: JsonObject
    members: PodGroupMembers


def is_enqueued(group: JsonObject, members: PodGroupMembers) -> bool:
    """Tell whether a group has left its queue; one with pods on a node has, whatever its status says."""
    return bool(members.bound) or (group.get("status") or {}).get("phase", PENDING) not in ("", PENDING)


def is_enqueued_only(group: JsonObject) -> bool:
    """Tell whether a group has left its queue and not started yet."""
    return bool((group.get("status") or {}).get("phase") == INQUEUE)


def queue_of(group: JsonObject) -> str:
    """Return the name of the queue of a group."""
    name: str = (group.get("spec") or {}).get("queue") or DEFAULT_QUEUE
    return name


def enqueue_problem(
    group: JsonObject, queue: JsonObject | None, neighbours: Iterable[Neighbour], snapshot: Snapshot
) -> str:
    """Return why a group has to stay in its queue, in Volcano's words; empty if it may leave."""
    wanted = requirement_of(group).min_resources
    if not wanted:
        return ""
    held, owed = dict[str, Quantity](), dict(wanted)
    for each in neighbours:
        used = _used(each.members)
        waiting = requirement_of(each.group).min_resources if is_enqueued_only(each.group) else {}
        _add(owed, {name: max(amount - used.get(name, _ZERO), _ZERO) for name, amount in waiting.items()})
        if queue_of(each.group) == queue_of(group):
            names = used.keys() | waiting.keys()
            _add(held, {name: max(used.get(name, _ZERO), waiting.get(name, _ZERO)) for name in names})
    capability = capability_of(queue)
    if any(held.get(name, _ZERO) + amount > capability[name] for name, amount in wanted.items() if name in capability):
        return QUOTA_EXCEEDED
    # That others lack what this group does not ask for is no obstacle.
    return CLUSTER_OVERUSED if snapshot.insufficient({name: owed[name] for name in wanted}) else ""


def left_of(queue: JsonObject | None, members: Iterable[PodGroupMembers]) -> Resources:
    """Return what the pods of a queue may still take, for the resources that its capability limits."""
    left = capability_of(queue)
    for each in members:
        for name, amount in _used(each).items():
            if name in left:
                left[name] = max(left[name] - amount, _ZERO)
    return left


def capability_of(queue: JsonObject | None) -> dict[str, Quantity]:
    """Return the most that the pods of a queue may use; what is not named is not limited."""
    spec = (queue or {}).get("spec") or {}
    return {name: Quantity.parse(value) for name, value in (spec.get("capability") or {}).items()}


def _used(members: PodGroupMembers) -> Resources:
    used: dict[str, Quantity] = {}
    for pod in members.bound:
        _add(used, pod_requests(pod["spec"]))
    return used


def _add(total: dict[str, Quantity], amounts: Resources) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, _ZERO) + amount
