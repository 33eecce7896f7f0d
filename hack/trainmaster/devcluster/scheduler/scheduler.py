"""The scheduler: gives each waiting pod a node with enough free resources, and groups of pods all of theirs at once.

- What is in use is counted from the pods in the store, so nothing is lost by a restart and nothing is counted twice.
- A pod that does not fit gets the condition PodScheduled=False, reason Unschedulable, and a FailedScheduling event. It
  is looked at again when a pod ends, a node changes or the pod itself changes; by priority, then by age.
- Pods that belong to a group, see `gangs`, are bound together or not at all.
- Pods with scheduling gates, or of another scheduler, are left alone.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    VOLCANO_QUEUES,
)
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.client import find
from trainmaster.devcluster.controllers.loop import ControllerLoop, SingleLoop
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.devcluster.controllers.resourceclaim.claims import entries_of
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.devcluster.scheduler.binding import Binder
from trainmaster.devcluster.scheduler.devices import DeviceTrial
from trainmaster.devcluster.scheduler.fit import rank
from trainmaster.devcluster.scheduler.gangs.members import MemberIndex, group_of
from trainmaster.devcluster.scheduler.gangs.scheduler import GROUP_RESOURCES, GangScheduler
from trainmaster.devcluster.scheduler.reservations import Ledger, Trial
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resource_requirements import pod_requests

_DEFAULT_NAME = "default-scheduler"


class Scheduler(SingleLoop):
    """Binds pods to nodes; keys are pods, and groups of pods."""

    def __init__(self, api: Api, *, settings: ControllerSettings) -> None:
        self._api = api
        self._names = settings.scheduler_names
        self._ledger = Ledger()
        self._members = MemberIndex()
        self._waiting: set[ObjectKey] = set()
        """Pods and groups that did not fit."""
        self._binder = Binder(api)
        self._gangs = GangScheduler(
            api, members=self._members, ledger=self._ledger, binder=self._binder, serves=self._serves
        )
        self._loop = ControllerLoop("scheduler", self._reconcile, api=api, settings=settings)
        # Fed first: the handlers below may rely on it.
        self._loop.watch(PODS, self._members.observe)
        self._loop.watch(NODES, self._node_changed)
        self._loop.watch(PODS, self._pod_changed)
        for resource in GROUP_RESOURCES:
            self._loop.watch(resource, lambda event: self._loop.add(event.key))
        self._loop.watch(RESOURCE_CLAIMS, self._claim_changed)
        for resource in (RESOURCE_SLICES, DEVICE_CLASSES, VOLCANO_QUEUES):
            self._loop.watch(resource, self._spec_changed)

    def _serves(self, pod: JsonObject) -> bool:
        return pod["spec"].get("schedulerName", _DEFAULT_NAME) in self._names

    def _node_changed(self, event: Event) -> None:
        if event.previous is None or _placement_facts(event.previous.object) != _placement_facts(event.record.object):
            self._retry_waiting()

    def _spec_changed(self, event: Event) -> None:
        parts = ("spec",) if event.key.resource != VOLCANO_QUEUES else ("spec", "status")
        previous = None if event.previous is None else event.previous.object
        if previous is None or any(previous.get(part) != event.record.object.get(part) for part in parts):
            self._retry_waiting()

    def _claim_changed(self, event: Event) -> None:
        had = event.previous is not None and "allocation" in event.previous.object.get("status", {})
        has = event.type != "DELETED" and "allocation" in event.record.object.get("status", {})
        if event.previous is None or (had and not has):
            self._retry_waiting()

    def _pod_changed(self, event: Event) -> None:
        pod = event.record.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        for record in (event.previous, event.record):
            group = None if record is None else group_of(record.object)
            if group is not None:
                self._loop.add(group)
        if event.type == "DELETED" or _has_ended(pod):
            self._waiting.discard(event.key)
            if node and self._ledger.of(node).remove(uid):
                self._retry_waiting()
        elif node:
            self._waiting.discard(event.key)
            if uid not in self._ledger.of(node).pods:
                self._ledger.of(node).add(uid, pod_requests(pod["spec"]))
            self._loop.add(event.key)
        elif event.previous is None or _wishes(event.previous.object) != _wishes(pod):
            self._loop.add(event.key)

    def _retry_waiting(self) -> None:
        for key in sorted(self._waiting, key=self._rank):
            self._loop.add(key)

    def _rank(self, key: ObjectKey) -> tuple[bool, int, str, str]:
        """Order what waits: groups that were caught half bound first, then by priority and age."""
        obj = find(self._api, key)
        if obj is None:
            return (True, 0, "", key.name)
        if key.resource == PODS:
            return (True, *rank(obj))
        roster = self._gangs.roster(key)
        priority = max((pod["spec"].get("priority", 0) for pod in roster.waiting), default=0)
        return (not roster.bound, -priority, obj["metadata"]["creationTimestamp"], key.name)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        if key.resource in GROUP_RESOURCES:
            waits, again = await self._gangs.reconcile(key)
            (self._waiting.add if waits else self._waiting.discard)(key)
            return again
        pod = find(self._api, key)
        if pod is None or _has_ended(pod):
            self._waiting.discard(key)
            return None
        if pod["spec"].get("nodeName"):
            await self._binder.confirm(pod)
        elif (
            not is_terminating(pod)
            and not pod["spec"].get("schedulingGates")
            and self._serves(pod)
            and group_of(pod) is None
        ):
            await self._schedule(key, pod)
        return None

    async def _schedule(self, key: ObjectKey, pod: JsonObject) -> None:
        nodes = [record.object for record in self._api.store.list(NODES)]
        placement = Trial(nodes, self._ledger, DeviceTrial(self._api)).place(pod)
        if placement.node is not None:
            await self._binder.bind(placement)
        else:
            self._waiting.add(key)
            await self._binder.postpone(pod, placement.message)


def _has_ended(pod: JsonObject) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _placement_facts(node: JsonObject) -> list[object]:
    """Return what of a node decides on placement; its heartbeats do not."""
    return [node.get("spec"), node["metadata"].get("labels"), node.get("status", {}).get("allocatable")]


def _wishes(pod: JsonObject) -> list[object]:
    """Return what of a pod decides on its placement; claims that were made for it are named in its status."""
    claims = pod.get("status", {}).get("resourceClaimStatuses") if entries_of(pod) else None
    return [pod["spec"], group_of(pod), claims]
