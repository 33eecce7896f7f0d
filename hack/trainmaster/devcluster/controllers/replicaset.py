"""The ReplicaSet controller: makes the pods that are missing, deletes those that are too many, writes the status.

A refusal to create or delete a pod becomes the condition ReplicaFailure, and is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import PODS, REPLICA_SETS
from trainmaster.devcluster.apiserver.selectors import LabelSelector, label_selector_from_object
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController, key_of
from trainmaster.devcluster.controllers.controller_ref_manager import ControllerRefManager, is_selected, owner_key
from trainmaster.devcluster.controllers.indexer import Indexer, controller_uid, delete, find
from trainmaster.devcluster.controllers.objects import (
    available_at,
    condition_of,
    is_active,
    is_ready,
    is_terminating,
    parse_time,
    phase_of,
    pod_of_template,
    ready_since,
)
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_OPTIONS = WriteOptions(field_manager="replicaset-controller")

_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_BURST = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

REPLICA_FAILURE = "ReplicaFailure"


class ReplicaSetController(SingleLoopController):
    """Keeps as many pods of each ReplicaSet as it wants."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods = ControllerRefManager(api, PODS, options=_OPTIONS)
        self._replicasets = Indexer(lambda obj: obj["metadata"]["namespace"])
        self._events = EventRecorder(api, "replicaset-controller")
        self._loop = ControlLoop("replicaset", self._reconcile, api=api)
        self._loop.watch(PODS, self._pods.observe)
        self._loop.watch(REPLICA_SETS, self._replicasets.observe)
        self._loop.watch_keys(REPLICA_SETS)
        self._loop.watch(PODS, self._pod_changed)

    def _pod_changed(self, event: Event) -> None:
        for record in (event.record, event.previous):
            key = None if record is None else owner_key(record.object, "ReplicaSet", REPLICA_SETS)
            if key is not None:
                self._loop.add(key)
        pod = event.record.object
        if event.type != "DELETED" and controller_uid(pod) is None:
            for replicaset in self._replicasets.by_index(event.key.namespace):
                if is_selected(replicaset, pod):
                    self._loop.add(key_of(REPLICA_SETS, replicaset))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        replicaset = find(self._api, key)
        if replicaset is None:
            return None
        pods = await self._pods.claim(replicaset)
        failure: tuple[str, str] | None = None
        refusal: StatusError | None = None
        if not is_terminating(replicaset):
            try:
                await self._apply(replicaset, plan_replicaset(replicaset, pods))
            except StatusError as error:
                refusal = error
                failure = ("FailedCreate", error.message)
        pods = self._pods.of(replicaset)
        now = self._api.clock()
        await self._write_status(replicaset, replicaset_status(replicaset, pods, failure=failure, now=now))
        if refusal is not None:
            raise refusal
        return next_availability(replicaset, pods, now=now)

    async def _apply(self, replicaset: JsonObject, plan: ReplicaSetPlan) -> None:
        for _ in range(plan.create):
            try:
                pod = await self._api.create(PODS, pod_of_template(replicaset), options=_OPTIONS)
            except StatusError as error:
                note = Note("Warning", "FailedCreate", f"Error creating: {error.message}")
                await self._events.record(replicaset, note)
                raise
            await self._note(replicaset, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        for pod in plan.delete:
            if await delete(self._api, PODS, pod):
                await self._note(replicaset, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    async def _note(self, replicaset: JsonObject, reason: str, message: str) -> None:
        await self._events.record(replicaset, Note("Normal", reason, message))

    async def _write_status(self, replicaset: JsonObject, status: JsonObject) -> None:
        if status != (replicaset.get("status") or {}):
            await self._api.update(
                REPLICA_SETS, {**replicaset, "status": status}, subresource="status", options=_OPTIONS
            )


@dataclass(frozen=True, slots=True)
class ReplicaSetPlan:
    """What to do next."""

    create: int
    delete: Sequence[JsonObject]


def plan_replicaset(replicaset: JsonObject, pods: Sequence[JsonObject]) -> ReplicaSetPlan:
    """Compare the pods of a ReplicaSet with what it wants."""
    active = [pod for pod in pods if is_active(pod)]
    surplus = len(active) - replicaset["spec"]["replicas"]
    if surplus <= 0:
        return ReplicaSetPlan(min(-surplus, _BURST), [])
    # Two pods on one node are worth less than two on two nodes.
    nodes = Counter(pod["spec"].get("nodeName", "") for pod in active)
    active.sort(key=lambda pod: _worth(pod, nodes))
    return ReplicaSetPlan(0, active[: min(surplus, _BURST)])


def _worth(pod: JsonObject, nodes: Counter[str]) -> tuple[Any, ...]:
    """Return the key by which pods are sorted: what is deleted first comes first, as in kube-controller-manager."""
    status, metadata = pod.get("status", {}), pod["metadata"]
    node = pod["spec"].get("nodeName", "")
    since = ready_since(pod)
    statuses = status.get("containerStatuses") or ()
    return (
        bool(node),
        _PHASES.get(phase_of(pod), 0),
        is_ready(pod),
        _deletion_cost(metadata.get("annotations") or {}),
        -nodes[node],
        -(since or _EPOCH).timestamp(),
        -sum(each.get("restartCount", 0) for each in statuses),
        -parse_time(metadata["creationTimestamp"]).timestamp(),
    )


def _deletion_cost(annotations: JsonObject) -> int:
    text = annotations.get(_DELETION_COST, "0")
    return int(text) if text.lstrip("-").isdecimal() and text.isascii() else 0


def replicaset_status(
    replicaset: JsonObject, pods: Sequence[JsonObject], *, failure: tuple[str, str] | None, now: datetime
) -> JsonObject:
    """Return the status that follows from the pods; `failure` is reason and message of what was refused."""
    status: JsonObject = copy_tree(replicaset.get("status") or {})
    active = [pod for pod in pods if is_active(pod)]
    template = _labels_of_template(replicaset)
    seconds = replicaset["spec"].get("minReadySeconds", 0)
    availability = [available_at(pod, min_ready_seconds=seconds) for pod in active]
    counts = {
        "fullyLabeledReplicas": sum(template.matches(pod["metadata"].get("labels")) for pod in active),
        "readyReplicas": sum(is_ready(pod) for pod in active),
        "availableReplicas": sum(each is not None and each <= now for each in availability),
    }
    for field, count in counts.items():
        if count:
            status[field] = count
        else:
            status.pop(field, None)
    status["replicas"] = len(active)
    status["terminatingReplicas"] = sum(is_terminating(pod) for pod in pods)
    status["observedGeneration"] = replicaset["metadata"]["generation"]
    conditions = [each for each in status.get("conditions") or () if each["type"] != REPLICA_FAILURE]
    if failure is not None:
        known = condition_of(status.get("conditions") or (), REPLICA_FAILURE)
        new = {
            "type": REPLICA_FAILURE,
            "status": "True",
            "lastTransitionTime": timestamp(now),
            "reason": failure[0],
            "message": failure[1],
        }
        conditions.append(known if known and known.get("reason") == failure[0] else new)
    if conditions:
        status["conditions"] = conditions
    else:
        status.pop("conditions", None)
    return status


def _labels_of_template(replicaset: JsonObject) -> LabelSelector:
    labels = (replicaset["spec"]["template"].get("metadata") or {}).get("labels") or {}
    return label_selector_from_object({"matchLabels": labels})


def next_availability(replicaset: JsonObject, pods: Sequence[JsonObject], *, now: datetime) -> float | None:
    """Return the seconds until the next pod becomes available by having been ready for long enough."""
    seconds = replicaset["spec"].get("minReadySeconds", 0)
    moments = [available_at(pod, min_ready_seconds=seconds) for pod in pods if is_active(pod)]
    coming = [(moment - now).total_seconds() for moment in moments if moment is not None and moment > now]
    return min(coming, default=None)
