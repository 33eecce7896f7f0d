"""The Deployment controller: one step of a rollout at a time; what follows from it causes the next one.

- One ReplicaSet for each template, with the revision that `kubectl rollout history` shows; a template of the past takes
  its old ReplicaSet up again, under a new revision.
- Pods are replaced a few at a time (`rolling`), or all at once after the old ones have ended (Recreate).
- A paused Deployment is scaled, and not rolled out.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import DEPLOYMENTS, PODS, REPLICA_SETS, GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController, key_of
from trainmaster.devcluster.controllers.controller_ref_manager import ControllerRefManager, is_selected, owner_key
from trainmaster.devcluster.controllers.deployment import replicasets as of
from trainmaster.devcluster.controllers.deployment import rolling
from trainmaster.devcluster.controllers.deployment.status import (
    PROGRESSING,
    deployment_status,
    has_deadline,
    is_complete,
    next_check,
    set_availability,
    set_condition,
    set_failure,
    set_progress,
)
from trainmaster.devcluster.controllers.indexer import Indexer, controller_uid, delete, find
from trainmaster.devcluster.controllers.objects import find_condition, is_terminal, is_terminating
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="deployment-controller")


class DeploymentController(SingleLoopController):
    """Rolls out Deployments by their ReplicaSets."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._replicasets = ControllerRefManager(api, REPLICA_SETS, options=_OPTIONS)
        self._pods = ControllerRefManager(api, PODS, options=_OPTIONS)
        self._deployments = Indexer(lambda obj: obj["metadata"]["namespace"])
        self._events = EventRecorder(api, "deployment-controller")
        self._loop = ControlLoop("deployment", self._reconcile, api=api)
        self._loop.watch(PODS, self._pods.observe)
        self._loop.watch(REPLICA_SETS, self._replicasets.observe)
        self._loop.watch(DEPLOYMENTS, self._deployments.observe)
        self._loop.watch_keys(DEPLOYMENTS)
        self._loop.watch(REPLICA_SETS, self._replicaset_changed)
        self._loop.watch(PODS, self._pod_changed)

    def _replicaset_changed(self, event: Event) -> None:
        for record in (event.record, event.previous):
            key = None if record is None else owner_key(record.object, "Deployment", DEPLOYMENTS)
            if key is not None:
                self._loop.add(key)
        replicaset = event.record.object
        if event.type != "DELETED" and controller_uid(replicaset) is None:
            for deployment in self._deployments.by_index(event.key.namespace):
                if is_selected(deployment, replicaset):
                    self._loop.add(key_of(DEPLOYMENTS, deployment))

    def _pod_changed(self, event: Event) -> None:
        """Go on with Deployments that recreate their pods when the last old one has ended."""
        if event.type != "DELETED" and not is_terminal(event.record.object):
            return
        key = owner_key(event.record.object, "ReplicaSet", REPLICA_SETS)
        replicaset = None if key is None else find(self._api, key)
        owner = None if replicaset is None else owner_key(replicaset, "Deployment", DEPLOYMENTS)
        if owner is not None:
            self._loop.add(owner)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        deployment = find(self._api, key)
        if deployment is None:
            return None
        replicasets = await self._replicasets.claim(deployment)
        if is_terminating(deployment):
            return await self._write_status(deployment, of.find_new(deployment, replicasets))
        deployment = await self._tell_pause(deployment)
        new = of.find_new(deployment, replicasets)
        old = [each for each in replicasets if each is not new]
        if deployment["spec"].get("paused"):
            new = await self._sync_revision(deployment, new, old) if new is not None else None
            await self._resize(deployment, new, old, rolling.scale_paused(deployment, new, old))
        elif rolling.is_rolling(deployment):
            await self._roll(deployment, new, old)
        else:
            await self._recreate(deployment, new, old)
        return await self._finish(deployment)

    # Steps of a rollout

    async def _roll(self, deployment: JsonObject, new: JsonObject | None, old: list[JsonObject]) -> None:
        new = await self._sync_revision(deployment, new, old)
        wanted = rolling.size_of_new(deployment, [*old, new], of.size_of(new))
        if wanted != of.size_of(new):
            await self._resize(deployment, new, old, {new["metadata"]["name"]: wanted})
            return
        await self._resize(deployment, new, old, rolling.shrink_old(deployment, new, old))

    async def _recreate(self, deployment: JsonObject, new: JsonObject | None, old: list[JsonObject]) -> None:
        shrunk = {each["metadata"]["name"]: 0 for each in old if of.size_of(each)}
        if shrunk:
            await self._resize(deployment, new, old, shrunk)
            return
        pods = [pod for each in old for pod in self._pods.of(each)]
        if not all(is_terminal(pod) for pod in pods):
            return  # the end of the last one brings us here again
        new = await self._sync_revision(deployment, new, old)
        await self._resize(deployment, new, old, {new["metadata"]["name"]: deployment["spec"]["replicas"]})

    async def _sync_revision(
        self, deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject]
    ) -> JsonObject:
        """Return the ReplicaSet of the present template, with the highest revision; it is made if there is none."""
        revision = max((of.revision_of(each) for each in old), default=0) + 1
        if new is None:
            return await self._create(deployment, old, revision=revision)
        revision = max(revision, of.revision_of(new))
        if find_condition(deployment, PROGRESSING) is None and has_deadline(deployment):
            message = f'Found new replica set "{new["metadata"]["name"]}"'
            await self._set_progressing(deployment, "True", reason="FoundNewReplicaSet", message=message)
        updated = of.with_revision(new, deployment, revision=revision)
        return new if updated == new else await self._update(REPLICA_SETS, updated)

    async def _create(self, deployment: JsonObject, old: Sequence[JsonObject], *, revision: int) -> JsonObject:
        size = rolling.size_of_new(deployment, old, 0)
        new = of.new_replicaset(deployment, replicas=size, revision=revision)
        name = new["metadata"]["name"]
        try:
            made = await self._api.create(REPLICA_SETS, new, options=_OPTIONS)
        except StatusError as error:
            if error.reason == "AlreadyExists":
                await self._note_collision(deployment)
            else:
                message = f'Failed to create new replica set "{name}": {error.message}'
                await self._events.record(deployment, Note("Warning", "ReplicaSetCreateError", message))
                await self._set_progressing(deployment, "False", reason="ReplicaSetCreateError", message=message)
            raise
        if size:
            await self._note(deployment, f"Scaled up replica set {name} from 0 to {size}")
        if has_deadline(deployment):
            message = f'Created new replica set "{name}"'
            await self._set_progressing(deployment, "True", reason="NewReplicaSetCreated", message=message)
        return made

    async def _note_collision(self, deployment: JsonObject) -> None:
        """Take another name the next time: the ReplicaSet of this one is not ours, or has another template."""
        status = dict(deployment.get("status") or {})
        status["collisionCount"] = status.get("collisionCount", 0) + 1
        await self._update(DEPLOYMENTS, {**deployment, "status": status}, subresource="status")

    async def _resize(
        self, deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject], sizes: rolling.Sizes
    ) -> None:
        for each in (*old, *([new] if new is not None else ())):
            name, before = each["metadata"]["name"], of.size_of(each)
            size = sizes.get(name, before)
            if size != before:
                await self._update(REPLICA_SETS, {**each, "spec": {**each["spec"], "replicas": size}})
                direction = "up" if size > before else "down"
                await self._note(deployment, f"Scaled {direction} replica set {name} from {before} to {size}")

    # Status

    async def _finish(self, deployment: JsonObject) -> float | None:
        """Write what the status is after this step, and forget revisions that nobody goes back to any more."""
        current = find(self._api, key_of(DEPLOYMENTS, deployment))
        if current is None or current["metadata"]["uid"] != deployment["metadata"]["uid"]:
            return None
        new = of.find_new(current, self._replicasets.of(current))
        if new is not None:
            current = await self._sync_deployment_revision(current, new)
        return await self._write_status(current, new)

    async def _sync_deployment_revision(self, deployment: JsonObject, new: JsonObject) -> JsonObject:
        revision = of.annotations_of(new).get(of.REVISION)
        if revision is None or of.annotations_of(deployment).get(of.REVISION) == revision:
            return deployment
        annotations = {**of.annotations_of(deployment), of.REVISION: revision}
        return await self._update(
            DEPLOYMENTS, {**deployment, "metadata": {**deployment["metadata"], "annotations": annotations}}
        )

    async def _write_status(self, deployment: JsonObject, new: JsonObject | None) -> float | None:
        now = self._api.clock()
        replicasets = self._replicasets.of(deployment)
        old = [each for each in replicasets if new is None or each["metadata"]["uid"] != new["metadata"]["uid"]]
        status = deployment_status(deployment, new, old)
        set_availability(deployment, status, now=now)
        if not is_terminating(deployment):
            if not deployment["spec"].get("paused"):
                set_progress(deployment, status, new, now=now)
            set_failure(status, of.by_age(replicasets))
        if status != (deployment.get("status") or {}):
            deployment = await self._update(DEPLOYMENTS, {**deployment, "status": status}, subresource="status")
        if is_terminating(deployment) or deployment["spec"].get("paused"):
            return None
        if is_complete(deployment, status):
            await self._clean_up(deployment, old)
        return next_check(deployment, status, now=now)

    async def _clean_up(self, deployment: JsonObject, old: Sequence[JsonObject]) -> None:
        """Delete the oldest ReplicaSets that stand for nothing but a revision of the past."""
        kept = deployment["spec"].get("revisionHistoryLimit", len(old))
        candidates = sorted((each for each in old if not is_terminating(each)), key=of.revision_of)
        for each in candidates[: max(0, len(candidates) - kept)]:
            if not of.size_of(each) and not of.count([each], "replicas"):
                await delete(self._api, REPLICA_SETS, each)

    async def _tell_pause(self, deployment: JsonObject) -> JsonObject:
        """Say in the condition that a rollout is paused, or goes on, so that the pause does not count as time lost."""
        if not has_deadline(deployment):
            return deployment
        known = find_condition(deployment, PROGRESSING)
        is_told = known is not None and known.get("reason") == "DeploymentPaused"
        if known is not None and known.get("reason") == "ProgressDeadlineExceeded":
            return deployment
        if deployment["spec"].get("paused") and not is_told:
            return await self._set_progressing(
                deployment, "Unknown", reason="DeploymentPaused", message="Deployment is paused"
            )
        if not deployment["spec"].get("paused") and is_told:
            return await self._set_progressing(
                deployment, "Unknown", reason="DeploymentResumed", message="Deployment is resumed"
            )
        return deployment

    async def _set_progressing(self, deployment: JsonObject, value: str, *, reason: str, message: str) -> JsonObject:
        status = dict(deployment.get("status") or {})
        set_condition(status, PROGRESSING, value, reason=reason, message=message, now=self._api.clock())
        return await self._update(DEPLOYMENTS, {**deployment, "status": status}, subresource="status")

    async def _note(self, deployment: JsonObject, message: str) -> None:
        await self._events.record(deployment, Note("Normal", "ScalingReplicaSet", message))

    async def _update(self, resource: GroupResource, obj: JsonObject, *, subresource: str | None = None) -> JsonObject:
        return await self._api.update(resource, obj, subresource=subresource, options=_OPTIONS)
