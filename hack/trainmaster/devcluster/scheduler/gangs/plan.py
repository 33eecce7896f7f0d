"""What to do about a gang: which of its pods are bound now, and why the others cannot be. Pure but for the snapshot.

All or nothing: pods are bound only if, together with those that run already, they make the group complete. Nothing is
ever reserved for an incomplete group, so groups cannot block each other; the price is that small groups may pass a
large one again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainmaster.devcluster.scheduler.filters import fit_error, pre_filter_error
from trainmaster.devcluster.scheduler.gangs.pod_group import PodGroupMembers, PodGroupRequirement
from trainmaster.devcluster.scheduler.node_info import ScheduleResult, Snapshot
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests

GangState = Literal["Complete", "TooFewPods", "TooFewResources"]
"""The group has, or gets next, what it needs; or it lacks pods; or it lacks room."""

_ZERO = Quantity.parse(0)


@dataclass(slots=True)
class GangPlan:
    """What to do with the waiting pods of a group."""

    state: GangState
    message: str = ""
    """What keeps the group from starting."""
    bind: list[ScheduleResult] = field(default_factory=list)
    unschedulable: list[tuple[JsonObject, str]] = field(default_factory=list)
    enqueue_problem: str = ""
    """What keeps the group in its queue (Volcano)."""
    stable: str | None = None
    """The part of the messages that does not change with every pod that comes."""


def plan_gang(
    requirement: PodGroupRequirement,
    members: PodGroupMembers,
    snapshot: Snapshot,
    *,
    nodes: int,
    waiting: Sequence[JsonObject],
) -> GangPlan:
    """Decide about the waiting pods, which are given in the order in which they should get their nodes."""
    if not requirement.is_met_by(members.present):
        stable = pre_filter_error("cannot find enough sibling pods", nodes).rstrip(".")
        message = (
            f"{stable}, current pods number: {len(members.present)}, minMember of group: {requirement.min_member}."
        )
        postponed = [(pod, message) for pod in waiting]
        return GangPlan("TooFewPods", message, unschedulable=postponed, stable=stable)
    started = requirement.is_met_by(members.scheduled)
    if not started:
        lacking = snapshot.insufficient(_still_insufficient(requirement.min_resources, members.bound))
        if lacking:
            message = fit_error([[f"Insufficient {name}" for name in lacking]] * nodes, nodes)
            return GangPlan("TooFewResources", message, unschedulable=[(pod, message) for pod in waiting])
    results = [snapshot.schedule(pod) for pod in waiting]
    placed = [each for each in results if each.node is not None]
    refused = [each for each in results if each.node is None]
    if requirement.is_met_by([*members.scheduled, *(each.pod for each in placed)]):
        return GangPlan("Complete", bind=placed, unschedulable=[(each.pod, each.message) for each in refused])
    message = refused[0].message
    return GangPlan("TooFewResources", message, unschedulable=[(pod, message) for pod in waiting])


def _still_insufficient(resources: Resources, bound: Iterable[JsonObject]) -> Resources:
    """Return what the group needs besides what its own pods use already."""
    needed = dict(resources)
    for pod in bound:
        for name, quantity in pod_requests(pod["spec"]).items():
            if name in needed:
                needed[name] = max(needed[name] - quantity, _ZERO)
    return needed
