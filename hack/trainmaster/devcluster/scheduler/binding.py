"""Binding: how results of the scheduler are written into pods. Every step can be repeated."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.controllers.objects import find_condition
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.devcluster.scheduler.node_info import ScheduleResult
from trainmaster.runtime.jsontree import JsonObject

_COMPONENT = "default-scheduler"
_OPTIONS = WriteOptions(field_manager="kube-scheduler")


class Binder:
    """Writes nodes, conditions and events of pods."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.events = EventRecorder(api, _COMPONENT)

    async def bind(self, result: ScheduleResult) -> None:
        """Give the pod its node."""
        pod, node = result.pod, result.node
        metadata = pod["metadata"]
        # A patch, so that a change of the pod since it was read, say of its labels, does not stand in the way.
        change = {"metadata": {"uid": metadata["uid"]}, "spec": {"nodeName": node}}
        bound, _ = await self._api.patch(
            PODS,
            metadata["namespace"],
            metadata["name"],
            change,
            patch_type=PatchType.MERGE,
            subresource="binding",
            options=_OPTIONS,
        )
        await self.mark_scheduled(bound)
        text = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        await self.events.record(pod, Note("Normal", "Scheduled", text), action="Binding")

    async def mark_scheduled(self, pod: JsonObject) -> None:
        """Say that the pod is scheduled; also after a crash between the binding and this."""
        if (find_condition(pod, "PodScheduled") or {}).get("status") != "True":
            await self._set_condition(pod, {"status": "True"})

    async def mark_unschedulable(self, pod: JsonObject, message: str, *, stable: str | None = None) -> None:
        """Say why the pod has to wait; a message that begins with `stable` is near enough to the known one."""
        known = find_condition(pod, "PodScheduled") or {}
        text = known.get("message", "")
        if known.get("status") == "False" and (text == message or (stable is not None and text.startswith(stable))):
            return
        await self._set_condition(pod, {"status": "False", "reason": "Unschedulable", "message": message})
        await self.events.record(pod, Note("Warning", "FailedScheduling", message), action="Scheduling")

    async def _set_condition(self, pod: JsonObject, fields: JsonObject) -> None:
        status = pod.get("status", {})
        known = find_condition(pod, "PodScheduled") or {}
        now = timestamp(self._api.clock())
        since = known.get("lastTransitionTime", now) if known.get("status") == fields["status"] else now
        condition = {"type": "PodScheduled", "lastProbeTime": None, "lastTransitionTime": since, **fields}
        others = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
        await self._api.update(
            PODS,
            {**pod, "status": {**status, "conditions": [*others, condition]}},
            subresource="status",
            options=_OPTIONS,
        )
