"""The scheduler: gives each waiting pod a node with enough free resources.

- What is in use is counted from the pods in the store, so nothing is lost by a restart and nothing is counted twice.
- A pod that does not fit gets the condition PodScheduled=False, reason Unschedulable, and a FailedScheduling event. It
  is looked at again when a pod ends, a node changes or the pod itself changes; by priority, then by age.
- Pods with scheduling gates, or of another scheduler, are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.devcluster.api import Api, WriteOptions
from trainmaster.devcluster.controllers.access import find
from trainmaster.devcluster.controllers.events import EventRecorder, Note
from trainmaster.devcluster.controllers.objects import find_condition, is_terminating
from trainmaster.devcluster.controllers.placing import explain, misfits
from trainmaster.devcluster.controllers.running import ControllerLoop
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.devcluster.kinds.times import timestamp
from trainmaster.devcluster.resources import NODES, PODS
from trainmaster.devcluster.store import Event, ObjectKey
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantities import Quantity
from trainmaster.runtime.resources import Resources, pod_requests

_SCHEDULER = "default-scheduler"
_OPTIONS = WriteOptions(field_manager="kube-scheduler")


@dataclass(slots=True)
class _Usage:
    """What the pods of one node have reserved."""

    reserved: Resources = field(default_factory=dict)
    pods: dict[str, Resources] = field(default_factory=dict)
    """Reservations by pod uid."""

    def add(self, uid: str, requests: Resources) -> None:
        if uid not in self.pods:
            self.pods[uid] = requests
            for name, quantity in requests.items():
                self.reserved[name] = self.reserved[name] + quantity if name in self.reserved else quantity

    def remove(self, uid: str) -> bool:
        requests: dict[str, Quantity] | None = self.pods.pop(uid, None)
        for name, quantity in (requests or {}).items():
            self.reserved[name] = self.reserved[name] - quantity
        return requests is not None


class Scheduler:
    """Binds pods to nodes."""

    def __init__(self, api: Api, *, settings: ControllerSettings) -> None:
        self._api = api
        self._names = settings.scheduler_names
        self._usage: dict[str, _Usage] = {}
        self._waiting: set[ObjectKey] = set()
        self._events = EventRecorder(api, _SCHEDULER)
        self._loop = ControllerLoop("scheduler", self._reconcile, api=api, settings=settings)
        self._loop.watch(NODES, self._node_changed)
        self._loop.watch(PODS, self._pod_changed)

    @property
    def loops(self) -> tuple[ControllerLoop, ...]:
        """The one loop of this controller, over pods."""
        return (self._loop,)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._loop.run()

    def _node_changed(self, event: Event) -> None:
        if event.previous is None or _placement_facts(event.previous.object) != _placement_facts(event.record.object):
            self._retry_waiting()

    def _pod_changed(self, event: Event) -> None:
        pod = event.record.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if event.type == "DELETED" or _has_ended(pod):
            self._waiting.discard(event.key)
            if node and self._usage_of(node).remove(uid):
                self._retry_waiting()
        elif node:
            self._waiting.discard(event.key)
            if uid not in self._usage_of(node).pods:
                self._usage_of(node).add(uid, pod_requests(pod["spec"]))
            self._loop.add(event.key)
        elif event.previous is None or event.previous.object["spec"] != pod["spec"]:
            self._loop.add(event.key)

    def _usage_of(self, node: str) -> _Usage:
        return self._usage.setdefault(node, _Usage())

    def _retry_waiting(self) -> None:
        pods = [(key, pod) for key in self._waiting if (pod := find(self._api, key)) is not None]
        for key, _ in sorted(pods, key=lambda each: _rank(each[1])):
            self._loop.add(key)

    async def _reconcile(self, key: ObjectKey) -> None:
        pod = find(self._api, key)
        if pod is None or _has_ended(pod):
            return
        if pod["spec"].get("nodeName"):
            await self._confirm(pod)
            return
        if (
            is_terminating(pod)
            or pod["spec"].get("schedulingGates")
            or pod["spec"].get("schedulerName", _SCHEDULER) not in self._names
        ):
            return
        requests = pod_requests(pod["spec"])
        reasons = []
        nodes = self._api.store.list(NODES)
        for node in nodes:
            name = node.metadata["name"]
            usage = self._usage_of(name)
            found = misfits(pod, requests, node.object, usage.reserved, len(usage.pods))
            if not found:
                await self._bind(pod, name)
                return
            reasons.append(found)
        self._waiting.add(key)
        await self._postpone(pod, explain(reasons, len(nodes)))

    async def _bind(self, pod: JsonObject, node: str) -> None:
        metadata = pod["metadata"]
        bound = await self._api.update(
            PODS,
            {**pod, "spec": {**pod["spec"], "nodeName": node}},
            namespace=metadata["namespace"],
            name=metadata["name"],
            options=_OPTIONS,
        )
        await self._confirm(bound)
        text = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        await self._events.record(pod, Note("Normal", "Scheduled", text), action="Binding")

    async def _confirm(self, pod: JsonObject) -> None:
        """Say that the pod is scheduled; also after a crash between the binding and this."""
        if (find_condition(pod, "PodScheduled") or {}).get("status") != "True":
            await self._set_condition(pod, {"status": "True"})

    async def _postpone(self, pod: JsonObject, message: str) -> None:
        known = find_condition(pod, "PodScheduled") or {}
        if known.get("status") != "False" or known.get("message") != message:
            await self._set_condition(pod, {"status": "False", "reason": "Unschedulable", "message": message})
            await self._events.record(pod, Note("Warning", "FailedScheduling", message), action="Scheduling")

    async def _set_condition(self, pod: JsonObject, facts: JsonObject) -> None:
        metadata, status = pod["metadata"], pod.get("status", {})
        known = find_condition(pod, "PodScheduled") or {}
        now = timestamp(self._api.clock())
        since = known.get("lastTransitionTime", now) if known.get("status") == facts["status"] else now
        condition = {"type": "PodScheduled", "lastProbeTime": None, "lastTransitionTime": since, **facts}
        others = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
        await self._api.update(
            PODS,
            {**pod, "status": {**status, "conditions": [*others, condition]}},
            namespace=metadata["namespace"],
            name=metadata["name"],
            subresource="status",
            options=_OPTIONS,
        )


def _has_ended(pod: JsonObject) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _placement_facts(node: JsonObject) -> list[object]:
    """Return what of a node decides on placement; its heartbeats do not."""
    return [node.get("spec"), node["metadata"].get("labels"), node.get("status", {}).get("allocatable")]


def _rank(pod: JsonObject) -> tuple[int, str, str]:
    metadata = pod["metadata"]
    return (-pod["spec"].get("priority", 0), metadata["creationTimestamp"], metadata["name"])
