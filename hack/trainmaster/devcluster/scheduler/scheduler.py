"""The scheduler: gives each waiting pod a node with enough free resources, and groups of pods all of theirs at once.

- What is in use is counted from the pods in the store, so nothing is lost by a restart and nothing is counted twice.
- A pod that does not fit gets the condition PodScheduled=False, reason Unschedulable, and a FailedScheduling event. It
  is looked at again when a pod ends, a node changes or the pod itself changes; by priority, then by age.
- Pods of a lower priority make room, see `preemption`.
- Pods that belong to a group, see `gangs`, are bound together or not at all.
- Pods with scheduling gates, or of another scheduler, are left alone.
"""

from __future__ import annotations

from functools import partial

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRIORITY_CLASSES,
    VOLCANO_QUEUES,
    WORKLOAD_POD_GROUPS,
)
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import Indexer, find
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.devcluster.scheduler.binding import Binder
from trainmaster.devcluster.scheduler.filters import queue_sort_key
from trainmaster.devcluster.scheduler.gangs.gang_scheduler import GROUP_RESOURCES, GangScheduler
from trainmaster.devcluster.scheduler.gangs.pod_group import pod_group_of
from trainmaster.devcluster.scheduler.gangs.volcano import is_enqueued_only
from trainmaster.devcluster.scheduler.node_info import NodeInfos, Snapshot
from trainmaster.devcluster.scheduler.preemption import Preemption, priority_of
from trainmaster.runtime.jsontree import JsonObject

_DEFAULT_NAME = "default-scheduler"
_SCHEDULER_NAMES = frozenset({_DEFAULT_NAME, "scheduler-plugins-scheduler", "volcano"})
"""Values of `spec.schedulerName` that are served: the usual one, and the gang schedulers."""


class Scheduler(SingleLoopController):
    """Binds pods to nodes; keys are pods, and groups of pods."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._node_infos = NodeInfos()
        self._group_of = partial(pod_group_of, of_kubernetes=api.registry.serves(WORKLOAD_POD_GROUPS))
        self._members = Indexer(self._group_of)
        self._unschedulable: set[ObjectKey] = set()
        """Pods and groups that did not fit."""
        self._binder = Binder(api)
        self._preemption = Preemption(api, self._binder.events)
        self._gangs = GangScheduler(
            api,
            members=self._members,
            node_infos=self._node_infos,
            binder=self._binder,
            preemption=self._preemption,
            is_responsible_for=self._is_responsible_for,
        )
        self._loop = ControlLoop("scheduler", self._reconcile, api=api)
        # Fed first: the handlers below may rely on it.
        self._loop.watch(PODS, self._members.observe)
        self._loop.watch(NODES, self._node_changed)
        self._loop.watch(PODS, self._pod_changed)
        for resource in GROUP_RESOURCES:
            self._loop.watch(resource, self._group_changed)
        self._loop.watch(PERSISTENT_VOLUME_CLAIMS, self._volume_claim_changed)
        self._loop.watch(VOLCANO_QUEUES, self._queue_changed)

    def _is_responsible_for(self, pod: JsonObject) -> bool:
        return pod["spec"].get("schedulerName", _DEFAULT_NAME) in _SCHEDULER_NAMES

    def _node_changed(self, event: Event) -> None:
        if event.previous is None or _scheduling_properties(event.previous.object) != _scheduling_properties(
            event.record.object
        ):
            self._requeue_unschedulable()

    def _queue_changed(self, event: Event) -> None:
        previous = None if event.previous is None else event.previous.object
        if previous is None or any(previous.get(part) != event.record.object.get(part) for part in ("spec", "status")):
            self._requeue_unschedulable()

    def _group_changed(self, event: Event) -> None:
        self._loop.add(event.key)
        if event.previous is not None and is_enqueued_only(event.previous.object):
            before, after = event.previous.object, event.record.object
            if event.type == "DELETED" or before.get("spec") != after.get("spec") or not is_enqueued_only(after):
                self._requeue_unschedulable()  # it holds less than before

    def _volume_claim_changed(self, event: Event) -> None:
        if (
            event.previous is None
            or event.type == "DELETED"
            or event.previous.object.get("status") != event.record.object.get("status")
        ):
            self._requeue_unschedulable()

    def _pod_changed(self, event: Event) -> None:
        pod = event.record.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        for record in (event.previous, event.record):
            group = None if record is None else self._group_of(record.object)
            if group is not None:
                self._loop.add(group)
        if event.type == "DELETED" or _has_ended(pod):
            self._unschedulable.discard(event.key)
            if node and self._node_infos.get(node).remove(uid):
                self._requeue_unschedulable()
        elif node:
            self._unschedulable.discard(event.key)
            if uid not in self._node_infos.get(node).pods:
                self._node_infos.get(node).add(pod)
            self._loop.add(event.key)
        elif event.previous is None or _scheduling_inputs(event.previous.object) != _scheduling_inputs(pod):
            self._loop.add(event.key)

    def _requeue_unschedulable(self) -> None:
        for key in sorted(self._unschedulable, key=self._queue_sort_key):
            self._loop.add(key)

    def _queue_sort_key(self, key: ObjectKey) -> tuple[bool, int, str, str]:
        """Order what waits: groups that were caught half bound first, then by priority and age."""
        obj = find(self._api, key)
        if obj is None:
            return (True, 0, "", key.name)
        if key.resource == PODS:
            return (True, *queue_sort_key(obj))
        members = self._gangs.members(key)
        if key.resource == WORKLOAD_POD_GROUPS:
            priority = priority_of(obj)
        else:
            priority = max(map(priority_of, members.waiting), default=self._priority_of(obj))
        return (not members.bound, -priority, obj["metadata"]["creationTimestamp"], key.name)

    def _priority_of(self, group: JsonObject) -> int:
        """Return the priority of a group without pods, by the class that it names."""
        name = (group.get("spec") or {}).get("priorityClassName")
        found = find(self._api, ObjectKey(PRIORITY_CLASSES, "", name)) if name else None
        return int(found.get("value", 0)) if found else 0

    async def _reconcile(self, key: ObjectKey) -> float | None:
        if key.resource in GROUP_RESOURCES:
            self._unschedulable.add(key)  # first: pods that make room for it may be gone at once
            waits, again = await self._gangs.reconcile(key)
            if not waits:
                self._unschedulable.discard(key)
            return again
        pod = find(self._api, key)
        if pod is None or _has_ended(pod):
            self._unschedulable.discard(key)
            return None
        if pod["spec"].get("nodeName"):
            await self._binder.mark_scheduled(pod)
        elif (
            not is_terminating(pod)
            and not pod["spec"].get("schedulingGates")
            and self._is_responsible_for(pod)
            and self._group_of(pod) is None
        ):
            await self._schedule(key, pod)
        return None

    async def _schedule(self, key: ObjectKey, pod: JsonObject) -> None:
        nodes = [record.object for record in self._api.store.list(NODES)]
        result = Snapshot(self._api, nodes, self._node_infos).schedule(pod)
        if result.node is not None:
            await self._binder.bind(result)
        else:
            self._unschedulable.add(key)
            await self._binder.mark_unschedulable(pod, result.message)
            await self._preemption.preempt(pod, nodes)


def _has_ended(pod: JsonObject) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _scheduling_properties(node: JsonObject) -> list[object]:
    """Return what of a node decides on placement; its heartbeats do not."""
    return [node.get("spec"), node["metadata"].get("labels"), node.get("status", {}).get("allocatable")]


def _scheduling_inputs(pod: JsonObject) -> list[object]:
    """Return what of a pod decides on its placement."""
    return [pod["spec"], pod_group_of(pod)]
