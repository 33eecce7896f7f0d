"""The protection of persistent volume claims: one that is deleted goes when no pod uses it any more.

As in a real cluster every pod counts that was given to a node, also one that has ended, until it is deleted: its node
may still hold the volume. Pods that no node has keep no claim.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.admission.plugins.storageobjectinuseprotection import PVC_PROTECTION_FINALIZER
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import find
from trainmaster.devcluster.controllers.objects import has_finalizer, is_terminating, without_finalizer
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="pvc-protection-controller")


class PvcProtectionController(SingleLoopController):
    """Takes the finalizer off deleted claims."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._loop = ControlLoop("pvc-protection", self._reconcile, api=api)
        self._loop.watch_keys(PERSISTENT_VOLUME_CLAIMS)
        self._loop.watch(PODS, self._pod_changed)

    def _pod_changed(self, event: Event) -> None:
        if event.type == "DELETED":
            for name in _claims_of(event.record.object):
                self._loop.add(ObjectKey(PERSISTENT_VOLUME_CLAIMS, event.key.namespace, name))

    async def _reconcile(self, key: ObjectKey) -> None:
        claim = find(self._api, key)
        if claim is None or not is_terminating(claim) or not has_finalizer(claim, PVC_PROTECTION_FINALIZER):
            return
        if any(_uses(record.object, key.name) for record in self._api.store.list(PODS, key.namespace)):
            return  # the end of the pod brings the claim here again
        await self._api.update(
            PERSISTENT_VOLUME_CLAIMS, without_finalizer(claim, PVC_PROTECTION_FINALIZER), options=_OPTIONS
        )


def _uses(pod: JsonObject, claim: str) -> bool:
    return bool(pod["spec"].get("nodeName")) and claim in _claims_of(pod)


def _claims_of(pod: JsonObject) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if (source := volume.get("persistentVolumeClaim")) is not None:
            yield source["claimName"]
