"""Which group a pod belongs to, and which pods a group has.

A pod names its group by the label of coscheduling or by the annotation of Volcano; with both, its scheduler decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.devcluster.apiserver.resources import POD_GROUPS, VOLCANO_POD_GROUPS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.runtime.jsontree import JsonObject

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
VOLCANO_SCHEDULER = "volcano"
TASK_ANNOTATION = "volcano.sh/task-spec"


def group_of(pod: JsonObject) -> ObjectKey | None:
    """Return the group that a pod names, whether or not it exists."""
    metadata = pod["metadata"]
    annotations = metadata.get("annotations") or {}
    by_label = (metadata.get("labels") or {}).get(COSCHEDULING_LABEL)
    by_annotation = next((annotations[key] for key in VOLCANO_ANNOTATIONS if annotations.get(key)), None)
    if by_annotation and (not by_label or pod["spec"].get("schedulerName") == VOLCANO_SCHEDULER):
        return ObjectKey(VOLCANO_POD_GROUPS, metadata["namespace"], by_annotation)
    return ObjectKey(POD_GROUPS, metadata["namespace"], by_label) if by_label else None


class MemberIndex:
    """Pods by group; feed it by `ControllerLoop.watch(PODS, index.observe)`."""

    def __init__(self) -> None:
        self._members: dict[ObjectKey, dict[ObjectKey, JsonObject]] = {}

    def observe(self, event: Event) -> None:
        """Take in a change of a pod."""
        for record in (event.previous, event.record):
            group = None if record is None else group_of(record.object)
            if group is not None:
                members = self._members.get(group, {})
                members.pop(event.key, None)
                if not members:
                    self._members.pop(group, None)
        group = group_of(event.record.object)
        if event.type != "DELETED" and group is not None:
            self._members.setdefault(group, {})[event.key] = event.record.object

    def of(self, group: ObjectKey) -> list[JsonObject]:
        """Return the pods of a group, by name."""
        members = self._members.get(group, {})
        return [members[key] for key in sorted(members)]


@dataclass(frozen=True, slots=True)
class Roster:
    """The pods of a group, by what they do."""

    waiting: Sequence[JsonObject] = ()
    """Those that could be bound now."""
    bound: Sequence[JsonObject] = ()
    succeeded: Sequence[JsonObject] = ()
    failed: Sequence[JsonObject] = ()
    others: Sequence[JsonObject] = ()
    """Those that count for nothing: they wait behind a gate, or go away."""

    @property
    def is_active(self) -> bool:
        """Tell whether some pod has not ended."""
        return bool(self.waiting or self.bound or self.others)

    @property
    def running(self) -> int:
        """The number of pods that run."""
        return sum(1 for pod in self.bound if pod.get("status", {}).get("phase") == "Running")

    @property
    def held(self) -> list[JsonObject]:
        """The pods that have got what they need."""
        return [*self.bound, *self.succeeded]

    @property
    def present(self) -> list[JsonObject]:
        """The pods that count."""
        return [*self.held, *self.waiting]


def roster_of(pods: Sequence[JsonObject]) -> Roster:
    """Sort the pods of a group."""
    sorted_pods: dict[str, list[JsonObject]] = {
        name: [] for name in ("waiting", "bound", "succeeded", "failed", "others")
    }
    for pod in pods:
        sorted_pods[_place_of(pod)].append(pod)
    return Roster(**sorted_pods)


def _place_of(pod: JsonObject) -> str:
    phase = pod.get("status", {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        return str(phase).lower()
    if is_terminating(pod):
        return "others"
    if pod["spec"].get("nodeName"):
        return "bound"
    return "others" if pod["spec"].get("schedulingGates") else "waiting"
