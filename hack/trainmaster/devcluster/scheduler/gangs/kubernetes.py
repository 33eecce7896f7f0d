"""PodGroups that Kubernetes itself schedules (`scheduling.k8s.io`): their placements and their status. Pure.

With a topology a group is placed on the nodes of one value of a label, where most of its pods fit; where some of its
pods are, the others follow.

PodGroupScheduled turns True when enough pods have a node, and stays so whatever becomes of them. Before that it is
False once the pods were tried; a group that lacks pods says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.objects import find_condition
from trainmaster.devcluster.scheduler.gangs.pod_group import (
    GangPlan,
    PodGroupMembers,
    PodGroupRequirement,
    StatusUpdate,
)
from trainmaster.runtime.jsontree import JsonObject

_CONDITION = "PodGroupScheduled"
NO_VICTIMS = "No preemption victims found for incoming preemptor"
_NO_PREEMPTION = "workload aware preemption is not supported for pod groups with scheduling constraints"


def topology_key(group: JsonObject) -> str | None:
    """Return the label of nodes of which a group takes one value."""
    topology = (group["spec"].get("schedulingConstraints") or {}).get("topology")
    return topology[0]["key"] if topology else None


def placements(group: JsonObject, members: PodGroupMembers, nodes: list[JsonObject]) -> list[list[JsonObject]]:
    """Return the sets of nodes of which a group takes one."""
    if (key := topology_key(group)) is None:
        return [nodes]
    domains: dict[str, list[JsonObject]] = {}
    for node in nodes:
        if value := (node["metadata"].get("labels") or {}).get(key):
            domains.setdefault(value, []).append(node)
    taken = {pod["spec"]["nodeName"] for pod in members.bound}
    of_members = [each for each in domains.values() if any(node["metadata"]["name"] in taken for node in each)]
    return of_members or [domains[value] for value in sorted(domains)]


def choose(group: JsonObject, plans: Sequence[GangPlan], *, placements: int) -> GangPlan:
    """Return the best of the plans for the placements of a group, or the one that was made without any node."""
    plan = max(plans, key=lambda each: (each.state == "Complete", len(each.bind)))
    if plan.state == "TooFewResources":
        plan.message = f"0/{placements} placements are available, first placement status: pod group is unschedulable"
        if topology_key(group) is not None:
            why = plan.message if placements else "no feasible placements found"
            plan.message = f"{why}, {_NO_PREEMPTION}"
        if not placements:
            plan.unschedulable = [(pod, plan.message) for pod, _ in plan.unschedulable]
    return plan


def next_status(
    group: JsonObject, members: PodGroupMembers, requirement: PodGroupRequirement, plan: GangPlan, *, now: datetime
) -> StatusUpdate:
    """Return the status that follows from the pods of a group."""
    status, known = group.get("status") or {}, find_condition(group, _CONDITION)
    if requirement.is_met_by(members.scheduled):
        fields = {"status": "True", "reason": "Scheduled", "message": ""}
    elif plan.unschedulable:
        fields = {"status": "False", "reason": "Unschedulable", "message": plan.message}
    else:
        return StatusUpdate(status)
    if known and (known["status"] == "True" or fields.items() <= known.items()):
        return StatusUpdate(status)
    others = [each for each in status.get("conditions") or () if each["type"] != _CONDITION]
    since = known["lastTransitionTime"] if known and known["status"] == fields["status"] else timestamp(now)
    condition = {"type": _CONDITION, **fields, "lastTransitionTime": since}
    return StatusUpdate({**status, "conditions": [*others, condition]})
