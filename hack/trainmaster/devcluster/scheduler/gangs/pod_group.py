"""PodGroups of all dialects: the group of a pod, the members of a group, what its spec asks for. Pure.

A pod names its group by `spec.schedulingGroup` (Kubernetes), by the label of coscheduling or by the annotation of
Volcano; with both of these, its scheduler decides.

What to do about a gang: which of its pods are bound now, and why the others cannot be. Pure but for the snapshot.

All or nothing: pods are bound only if, together with those that run already, they make the group complete. Nothing is
ever reserved for an incomplete group, so groups cannot block each other; the price is that small groups may pass a
large one again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainmaster.devcluster.apiserver.resources import POD_GROUPS, VOLCANO_POD_GROUPS, WORKLOAD_POD_GROUPS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.devcluster.events import Note
from trainmaster.devcluster.scheduler.filters import fit_error, pre_filter_error
from trainmaster.devcluster.scheduler.node_info import ScheduleResult, Snapshot
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_SCHEDULER = "volcano"
TASK_ANNOTATION = "volcano.sh/task-spec"

GangState = Literal["Complete", "TooFewPods", "TooFewResources"]
"""The group has, or gets next, what it needs; or it lacks pods; or it lacks room."""

WAITS = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, one or more plugins asked to "
    "wait and no plugin rejected pod"
)
"""What kube-scheduler tells pods that would fit."""

_ZERO = Quantity.parse(0)


def pod_group_of(pod: JsonObject, *, of_kubernetes: bool = True) -> ObjectKey | None:
    """Return the group that a pod names, whether or not it exists; the field counts if Kubernetes has PodGroups."""
    metadata = pod["metadata"]
    name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    if name and of_kubernetes:
        return ObjectKey(WORKLOAD_POD_GROUPS, metadata["namespace"], name)
    annotations = metadata.get("annotations") or {}
    by_label = (metadata.get("labels") or {}).get(COSCHEDULING_LABEL)
    by_annotation = next((annotations[key] for key in VOLCANO_ANNOTATIONS if annotations.get(key)), None)
    if by_annotation and (not by_label or pod["spec"].get("schedulerName") == VOLCANO_SCHEDULER):
        return ObjectKey(VOLCANO_POD_GROUPS, metadata["namespace"], by_annotation)
    return ObjectKey(POD_GROUPS, metadata["namespace"], by_label) if by_label else None


@dataclass(frozen=True, slots=True)
class PodGroupMembers:
    """The pods of a group, by their state."""

    waiting: Sequence[JsonObject] = ()
    """Those that could be bound now."""
    bound: Sequence[JsonObject] = ()
    succeeded: Sequence[JsonObject] = ()
    failed: Sequence[JsonObject] = ()
    gated: Sequence[JsonObject] = ()
    """Those with scheduling gates, if they count, as Kubernetes has it."""
    others: Sequence[JsonObject] = ()
    """Those that count for nothing."""

    @property
    def is_active(self) -> bool:
        """Tell whether some pod has not ended."""
        return bool(self.waiting or self.bound or self.others)

    @property
    def running(self) -> int:
        """The number of pods that run."""
        return sum(1 for pod in self.bound if pod.get("status", {}).get("phase") == "Running")

    @property
    def scheduled(self) -> list[JsonObject]:
        """The pods that have a node, or had one."""
        return [*self.bound, *self.succeeded]

    @property
    def present(self) -> list[JsonObject]:
        """The pods that count."""
        return [*self.scheduled, *self.waiting, *self.gated]


def sort_members(pods: Sequence[JsonObject]) -> PodGroupMembers:
    """Sort the pods of a group by their state."""
    sorted_pods: dict[str, list[JsonObject]] = {
        name: [] for name in ("waiting", "bound", "succeeded", "failed", "gated", "others")
    }
    for pod in pods:
        sorted_pods[_state_of(pod)].append(pod)
    return PodGroupMembers(**sorted_pods)


def _state_of(pod: JsonObject) -> str:
    # Kubernetes counts gated pods, and bound ones until they are gone, but none that has ended; the others do not.
    phase, of_kubernetes = pod.get("status", {}).get("phase"), "schedulingGroup" in pod["spec"]
    if phase in ("Succeeded", "Failed"):
        return "others" if of_kubernetes else str(phase).lower()
    if is_terminating(pod) and not (of_kubernetes and pod["spec"].get("nodeName")):
        return "others"
    if pod["spec"].get("nodeName"):
        return "bound"
    if pod["spec"].get("schedulingGates"):
        return "gated" if of_kubernetes else "others"
    return "waiting"


@dataclass(frozen=True, slots=True)
class PodGroupRequirement:
    """What a group asks for in its spec."""

    min_member: int = 1
    min_task_member: dict[str, int] = field(default_factory=dict)
    """Numbers of pods by task (Volcano)."""
    min_resources: Resources = field(default_factory=dict)

    def is_met_by(self, pods: Sequence[JsonObject]) -> bool:
        """Tell whether these pods are enough."""
        if len(pods) < self.min_member:
            return False
        names = [(pod["metadata"].get("annotations") or {}).get(TASK_ANNOTATION) for pod in pods]
        return all(names.count(task) >= count for task, count in self.min_task_member.items())


def requirement_of(group: JsonObject) -> PodGroupRequirement:
    """Read the spec of a group of any dialect."""
    spec = group.get("spec") or {}
    if policy := spec.get("schedulingPolicy"):
        return PodGroupRequirement((policy.get("gang") or {"minCount": 1})["minCount"])
    resources = {name: Quantity.parse(value) for name, value in (spec.get("minResources") or {}).items()}
    return PodGroupRequirement(max(spec.get("minMember", 1), 0), dict(spec.get("minTaskMember") or {}), resources)


@dataclass(slots=True)
class StatusUpdate:
    """The status that a group should have, and what goes with it."""

    status: JsonObject
    notes: list[Note] = field(default_factory=list)
    requeue_after: float | None = None
    """Seconds after which time itself changes the status."""


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
    waiting: Sequence[JsonObject],
    of_kubernetes: bool = False,
) -> GangPlan:
    """Decide about the waiting pods, which are given in the order in which they should get their nodes.

    Kubernetes says nothing of a group that lacks pods, and otherwise tells each pod its own reason.
    """
    if of_kubernetes and not requirement.is_met_by(members.present):
        return GangPlan("TooFewPods")
    if not requirement.is_met_by(members.present):
        stable = pre_filter_error("cannot find enough sibling pods", len(snapshot.nodes)).rstrip(".")
        message = (
            f"{stable}, current pods number: {len(members.present)}, minMember of group: {requirement.min_member}."
        )
        postponed = [(pod, message) for pod in waiting]
        return GangPlan("TooFewPods", message, unschedulable=postponed, stable=stable)
    started = requirement.is_met_by(members.scheduled)
    if not started:
        lacking = snapshot.insufficient(_still_insufficient(requirement.min_resources, members.bound))
        if lacking:
            nodes = len(snapshot.nodes)
            message = fit_error([[f"Insufficient {name}" for name in lacking]] * nodes, nodes)
            return GangPlan("TooFewResources", message, unschedulable=[(pod, message) for pod in waiting])
    results = [snapshot.schedule(pod) for pod in waiting]
    placed = [each for each in results if each.node is not None]
    refused = [each for each in results if each.node is None]
    if requirement.is_met_by([*members.scheduled, *(each.pod for each in placed)]):
        return GangPlan("Complete", bind=placed, unschedulable=[(each.pod, each.message) for each in refused])
    if of_kubernetes:
        return GangPlan("TooFewResources", unschedulable=[(each.pod, each.message or WAITS) for each in results])
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
