"""The controller of resource claims: makes them from templates, and takes devices back when nobody uses them any more.

- Each entry of a pod that names a template gets one claim, whose name is then written to the pod's status; a claim that
  was made before a crash is found again by its annotation.
- A pod that has ended, or is gone, no longer uses its claims. A claim without users loses its devices, and one that was
  made for a pod goes with the end of the pod.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import Indexer, controller_uid, delete, find
from trainmaster.devcluster.controllers.objects import has_finalizer, is_terminating, without_finalizer
from trainmaster.devcluster.controllers.resourceclaim.claims import (
    FINALIZER,
    POD_CLAIM_NAME,
    build_claim,
    claim_names,
    generated_claim_name,
    pod_claims,
    reserved_for,
)
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="resourceclaim-controller")


class ResourceClaimController(SingleLoopController):
    """Serves the pods that list resource claims; keys are claims, and pods with claims."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._generated = Indexer(controller_uid)
        self._events = EventRecorder(api, "resourceclaim-controller")
        self._loop = ControlLoop("resourceclaim", self._reconcile, api=api)
        self._loop.watch(RESOURCE_CLAIMS, self._generated.observe)
        self._loop.watch_keys(RESOURCE_CLAIMS)
        self._loop.watch(PODS, self._pod_changed)
        self._loop.watch(RESOURCE_CLAIM_TEMPLATES, self._template_changed)

    def _pod_changed(self, event: Event) -> None:
        pod = event.record.object
        if not pod_claims(pod):
            return
        self._loop.add(event.key)
        for _, name in claim_names(pod):
            if name is not None:
                self._loop.add(ObjectKey(RESOURCE_CLAIMS, event.key.namespace, name))

    def _template_changed(self, event: Event) -> None:
        for record in self._api.store.list(PODS, event.key.namespace):
            if any(each.get("resourceClaimTemplateName") == event.key.name for each in pod_claims(record.object)):
                self._loop.add(ObjectKey(PODS, event.key.namespace, record.metadata["name"]))

    async def _reconcile(self, key: ObjectKey) -> None:
        obj = find(self._api, key)
        if obj is None:
            return
        if key.resource == RESOURCE_CLAIMS:
            await self._sync_claim(obj)
        elif _has_ended(obj):
            for claim in self._generated.by_index(obj["metadata"]["uid"]):
                await delete(self._api, RESOURCE_CLAIMS, claim)
        elif not is_terminating(obj):
            await self._sync_pod(obj)

    async def _sync_pod(self, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        known = pod.get("status", {}).get("resourceClaimStatuses") or []
        created = []
        for entry in pod_claims(pod):
            template_name = entry.get("resourceClaimTemplateName")
            if template_name is None or generated_claim_name(pod, entry["name"]) is not None:
                continue
            claim = self._find_generated(pod, entry["name"])
            if claim is None:
                template = find(self._api, ObjectKey(RESOURCE_CLAIM_TEMPLATES, metadata["namespace"], template_name))
                if template is None:
                    text = f'PodResourceClaim {entry["name"]}: resource claim template "{template_name}" not found'
                    await self._events.record(pod, Note("Warning", "FailedResourceClaimCreation", text))
                    continue
                claim = await self._api.create(
                    RESOURCE_CLAIMS,
                    build_claim(pod, entry["name"], template),
                    namespace=metadata["namespace"],
                    options=_OPTIONS,
                )
            created.append({"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]})
        if created:
            await self._api.update(
                PODS,
                {**pod, "status": {**pod.get("status", {}), "resourceClaimStatuses": [*known, *created]}},
                namespace=metadata["namespace"],
                name=metadata["name"],
                subresource="status",
                options=_OPTIONS,
            )

    def _find_generated(self, pod: JsonObject, entry: str) -> JsonObject | None:
        for claim in self._generated.by_index(pod["metadata"]["uid"]):
            if (claim["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME) == entry and not is_terminating(claim):
                return claim
        return None

    async def _sync_claim(self, claim: JsonObject) -> None:
        metadata, status = claim["metadata"], claim.get("status", {})
        where = {"namespace": metadata["namespace"], "name": metadata["name"]}
        users = [each for each in reserved_for(claim) if self._is_used_by(metadata["namespace"], each)]
        wanted = {**status, "reservedFor": users}
        if not users:
            del wanted["reservedFor"]
            # Devices are given to a claim together with its first user; without users they are free again.
            wanted.pop("allocation", None)
        if wanted != status:
            claim = await self._api.update(
                RESOURCE_CLAIMS, {**claim, "status": wanted}, **where, subresource="status", options=_OPTIONS
            )
        if "allocation" not in wanted and has_finalizer(claim, FINALIZER) and (is_terminating(claim) or status):
            await self._api.update(RESOURCE_CLAIMS, without_finalizer(claim, FINALIZER), **where, options=_OPTIONS)

    def _is_used_by(self, namespace: str, consumer: JsonObject) -> bool:
        if consumer.get("resource") != "pods" or consumer.get("apiGroup"):
            return True  # not ours to judge
        pod = find(self._api, ObjectKey(PODS, namespace, consumer["name"]))
        if pod is None or pod["metadata"]["uid"] != consumer["uid"] or _has_ended(pod):
            return False
        # A pod that is deleted before it was bound will never run.
        return bool(pod["spec"].get("nodeName")) or not is_terminating(pod)


def _has_ended(pod: JsonObject) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
