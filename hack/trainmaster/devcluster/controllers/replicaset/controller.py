"""The ReplicaSet controller: carries out what `plan` decides.

A refusal to create or delete a pod becomes the condition ReplicaFailure, and is tried again.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import PODS, REPLICA_SETS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController, key_of
from trainmaster.devcluster.controllers.controller_ref_manager import ControllerRefManager, is_selected, owner_key
from trainmaster.devcluster.controllers.indexer import Indexer, controller_uid, delete, find
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.devcluster.controllers.pods import pod_of_template
from trainmaster.devcluster.controllers.replicaset.plan import (
    ReplicaSetPlan,
    next_availability,
    plan_replicaset,
    replicaset_status,
)
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="replicaset-controller")


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
                pod = await self._api.create(
                    PODS,
                    pod_of_template(replicaset),
                    namespace=replicaset["metadata"]["namespace"],
                    options=_OPTIONS,
                )
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
            metadata = replicaset["metadata"]
            await self._api.update(
                REPLICA_SETS,
                {**replicaset, "status": status},
                namespace=metadata["namespace"],
                name=metadata["name"],
                subresource="status",
                options=_OPTIONS,
            )
