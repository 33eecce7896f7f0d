"""The protection of objects in use: a deleted claim or PodGroup goes when no pod uses it any more.

As in a real cluster: a volume claim is used by every pod that was given to a node, also one that has ended, until it is
deleted, since its node may still hold the volume; a PodGroup by every pod that names it and has not ended.
"""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.devcluster.apiserver.admission.plugins.storageobjectinuseprotection import PVC_PROTECTION_FINALIZER
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.workload import POD_GROUP_PROTECTION_FINALIZER
from trainmaster.devcluster.apiserver.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    WORKLOAD_POD_GROUPS,
    GroupResource,
)
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import find
from trainmaster.devcluster.controllers.objects import (
    has_finalizer,
    is_terminal,
    is_terminating,
    without_finalizer,
)
from trainmaster.runtime.jsontree import JsonObject


class ProtectionController(SingleLoopController):
    """Takes the finalizer off deleted objects; `used_by` names those that a pod uses."""

    def __init__(
        self,
        name: str,
        api: Api,
        resource: GroupResource,
        finalizer: str,
        used_by: Callable[[JsonObject], list[str]],
    ) -> None:
        self._api = api
        self._resource = resource
        self._finalizer = finalizer
        self._used_by = used_by
        self._options = WriteOptions(field_manager=f"{name}-controller")
        self._loop = ControlLoop(name, self._reconcile, api=api)
        self._loop.watch_keys(resource)
        self._loop.watch(PODS, self._pod_changed)

    def _pod_changed(self, event: Event) -> None:
        if event.previous is not None:
            for name in self._used_by(event.previous.object):
                self._loop.add(ObjectKey(self._resource, event.key.namespace, name))

    async def _reconcile(self, key: ObjectKey) -> None:
        obj = find(self._api, key)
        if obj is None or not is_terminating(obj) or not has_finalizer(obj, self._finalizer):
            return
        if any(key.name in self._used_by(record.object) for record in self._api.store.list(PODS, key.namespace)):
            return  # the end of the pod brings the object here again
        await self._api.update(self._resource, without_finalizer(obj, self._finalizer), options=self._options)


def pvc_protection(api: Api) -> ProtectionController:
    """Protect volume claims."""
    return ProtectionController("pvc-protection", api, PERSISTENT_VOLUME_CLAIMS, PVC_PROTECTION_FINALIZER, _claims_of)


def _claims_of(pod: JsonObject) -> list[str]:
    volumes = pod["spec"].get("volumes") or [] if pod["spec"].get("nodeName") else []
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if each.get("persistentVolumeClaim")]


def pod_group_protection(api: Api) -> ProtectionController:
    """Protect PodGroups."""
    return ProtectionController(
        "podgroup-protection", api, WORKLOAD_POD_GROUPS, POD_GROUP_PROTECTION_FINALIZER, _groups_of
    )


def _groups_of(pod: JsonObject) -> list[str]:
    group = pod["spec"].get("schedulingGroup")
    return [] if group is None or is_terminal(pod) else [group["podGroupName"]]
