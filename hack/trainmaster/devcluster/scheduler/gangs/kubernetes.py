"""The status of a PodGroup that Kubernetes itself schedules (`scheduling.k8s.io`). Pure.

PodGroupScheduled turns True when enough pods have a node, and stays so whatever becomes of them. Before that it is
False once the pods were tried; a group that lacks pods says nothing.
"""

from __future__ import annotations

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


def next_status(
    group: JsonObject, members: PodGroupMembers, requirement: PodGroupRequirement, plan: GangPlan, *, now: datetime
) -> StatusUpdate:
    """Return the status that follows from the pods of a group."""
    status, known = group.get("status") or {}, find_condition(group, _CONDITION)
    if requirement.is_met_by(members.scheduled):
        fields = {"status": "True", "reason": "Scheduled", "message": ""}
    elif plan.unschedulable:
        fields = {"status": "False", "reason": "Unschedulable", "message": "pod group is unschedulable"}
    else:
        return StatusUpdate(status)
    if known and known["status"] in ("True", fields["status"]):
        return StatusUpdate(status)
    others = [each for each in status.get("conditions") or () if each["type"] != _CONDITION]
    condition = {"type": _CONDITION, **fields, "lastTransitionTime": timestamp(now)}
    return StatusUpdate({**status, "conditions": [*others, condition]})
