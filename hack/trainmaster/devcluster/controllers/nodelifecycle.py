"""The node lifecycle controller, with the part of the pod garbage collector that is about lost nodes.

- A node that has failed (annotation `trainmaster.dev/failed`, since the kubelet is in this process and sends no
  heartbeats) has the condition Ready=Unknown after the grace period, and its pods are not ready.
- A node that is not ready has the taint `not-ready` or `unreachable`, with the effects NoSchedule and NoExecute; when
  it is ready again they go. What follows for its pods is the business of taint eviction.
- Pods of a node that was deleted are removed after a while. So are, at once, pods that are being deleted on a node
  that is not ready and has the taint `out-of-service`. Both end as Failed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions, WriteOptions
from trainmaster.devcluster.apiserver.registry.generic.disruption import Disruption, disrupt
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import NODES, PODS, GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import Indexer, find
from trainmaster.devcluster.controllers.objects import find_condition, is_ready, is_terminating
from trainmaster.devcluster.settings import FAILED_ANNOTATION, NODE_MONITOR_GRACE_PERIOD
from trainmaster.runtime.jsontree import JsonObject

_PREFIX: Final = "node.kubernetes.io/"
_NOT_READY: Final = {"False": f"{_PREFIX}not-ready", "Unknown": f"{_PREFIX}unreachable"}
_OUT_OF_SERVICE: Final = f"{_PREFIX}out-of-service"
_QUARANTINE: Final = 40.0
"""Seconds after which pods of a node that does not exist are removed, as in kube-controller-manager."""

_ORPHANED: Final = Disruption("DeletionByPodGC", "PodGC: node no longer exists")
_OPTIONS: Final = WriteOptions(field_manager="kube-controller-manager")


class NodeLifecycleController(SingleLoopController):
    """Judges nodes by their silence; keys are nodes, also those that are gone."""

    def __init__(self, api: Api, *, grace_period: float = NODE_MONITOR_GRACE_PERIOD) -> None:
        self._api = api
        self._grace_period = grace_period
        self._pods = Indexer(lambda pod: pod["spec"].get("nodeName"))
        self._since: dict[str, datetime] = {}
        """Since when a node is known to be silent, or gone."""
        self._loop = ControlLoop("nodelifecycle", self._reconcile, api=api)
        self._loop.watch(PODS, self._pods.observe)
        self._loop.watch(PODS, self._pod_changed)
        self._loop.watch_keys(NODES)

    def _pod_changed(self, event: Event) -> None:
        if event.type != "DELETED" and (node := event.record.object["spec"].get("nodeName")):
            self._loop.add(ObjectKey(NODES, "", node))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        node, pods = find(self._api, key), self._pods.by_index(key.name)
        if node is None:
            left = self._left(key.name, _QUARANTINE) if pods else None
            if left == 0:
                await self._remove(pods, _ORPHANED)
            return left or None
        left = None
        if FAILED_ANNOTATION not in (node["metadata"].get("annotations") or ()):
            self._since.pop(key.name, None)
        elif is_ready(node):
            left = self._left(key.name, self._grace_period)
            if left == 0:
                node = await self._write_readiness(node)
        ready = (find_condition(node, "Ready") or {}).get("status", "True")
        taints = await self._write_taints(node, _NOT_READY.get(ready))
        if ready != "True":
            for pod in filter(is_ready, pods):
                await self._update(PODS, pod, {"status": "False", "reason": "NodeNotReady"})
            if any(taint["key"] == _OUT_OF_SERVICE for taint in taints):
                await self._remove(list(filter(is_terminating, pods)), None)
        return left or None

    def _left(self, name: str, seconds: float) -> float:
        """Return how much is left of a time that began when this was first asked of a node."""
        now = self._api.clock()
        return max(0.0, (self._since.setdefault(name, now) + timedelta(seconds=seconds) - now).total_seconds())

    async def _write_readiness(self, node: JsonObject) -> JsonObject:
        fields = {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
        return await self._update(NODES, node, {"status": "Unknown", **fields})

    async def _update(self, resource: GroupResource, obj: JsonObject, fields: JsonObject) -> JsonObject:
        """Write the condition Ready of an object."""
        now, status = timestamp(self._api.clock()), obj["status"]
        conditions = [
            {**each, **fields, "lastTransitionTime": now} if each["type"] == "Ready" else each
            for each in status["conditions"]
        ]
        changed = {**obj, "status": {**status, "conditions": conditions}}
        return await self._api.update(resource, changed, subresource="status", options=_OPTIONS)

    async def _write_taints(self, node: JsonObject, wanted: str | None) -> list[JsonObject]:
        """Give a node the taints that its readiness asks for; returns all that it has then."""
        before: list[JsonObject] = (node.get("spec") or {}).get("taints") or []
        taints = [each for each in before if each["key"] not in _NOT_READY.values() or each["key"] == wanted]
        for effect in ("NoSchedule", "NoExecute") if wanted else ():
            if not any((each["key"], each["effect"]) == (wanted, effect) for each in taints):
                taints.append({"key": wanted, "effect": effect, "timeAdded": timestamp(self._api.clock())})
        if taints != before:
            await self._api.update(NODES, {**node, "spec": {**node["spec"], "taints": taints}}, options=_OPTIONS)
        return taints

    async def _remove(self, pods: list[JsonObject], disruption: Disruption | None) -> None:
        for pod in pods:
            try:
                await disrupt(
                    self._api, pod, disruption, write=_OPTIONS, delete=DeleteOptions(grace_seconds=0), fails=True
                )
            except StatusError as error:
                if error.code != 404:
                    raise
