"""The JobSet controller: carries out what `plan` decides.

Events are recorded only after the status that they are about is written. A write that is refused leaves the rest of the
plan for the next reconcile, which plans anew.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import JOBS, JOBSETS, PERSISTENT_VOLUME_CLAIMS, SERVICES, GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import Indexer, controller_uid, delete, find
from trainmaster.devcluster.controllers.jobset.children import CONTROLLER_NAME, resume_job
from trainmaster.devcluster.controllers.jobset.plan import JobSetPlan, plan_jobset
from trainmaster.devcluster.controllers.jobset.webhook import jobset_webhook
from trainmaster.devcluster.controllers.objects import controller_of, is_terminating
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

_OPTIONS = WriteOptions(field_manager="jobset-controller")
_ACTION = "Reconciling"
_FAILURES: dict[GroupResource, str] = {
    JOBS: "JobCreationFailed",
    SERVICES: "HeadlessServiceCreationFailed",
    PERSISTENT_VOLUME_CLAIMS: "PVCCreationFailed",
}


class JobSetController(SingleLoopController):
    """Runs the JobSets that name no other controller in `spec.managedBy`; admits them from its construction on.

    Args:
        api: The API.
        elastic: Whether JobSets may change their size (feature gate ElasticJobSet).
    """

    def __init__(self, api: Api, *, elastic: bool = False) -> None:
        self._api = api
        self._jobs = Indexer(controller_uid)
        self._events = EventRecorder(api, "jobset-controller")
        self._loop = ControlLoop("jobset", self._reconcile, api=api)
        self._loop.watch(JOBS, self._jobs.observe)
        self._loop.watch_keys(JOBSETS)
        self._loop.watch(JOBS, self._job_changed)
        api.add_admission(JOBSETS, jobset_webhook(api.registry, elastic=elastic))

    def _job_changed(self, event: Event) -> None:
        owner = controller_of(event.record.object)
        if owner is not None and owner["kind"] == "JobSet":
            self._loop.add(ObjectKey(JOBSETS, event.key.namespace, owner["name"]))

    async def _reconcile(self, key: ObjectKey) -> float | None:
        jobset = find(self._api, key)
        if jobset is None or is_terminating(jobset):
            return None  # a JobSet that goes takes its Jobs with it: that is garbage collection
        if jobset["spec"].get("managedBy", CONTROLLER_NAME) != CONTROLLER_NAME:
            return None
        plan = plan_jobset(jobset, self._jobs.by_index(jobset["metadata"]["uid"]), now=self._api.clock())
        await self._apply(jobset, plan)
        return plan.requeue_after

    async def _apply(self, jobset: JsonObject, plan: JobSetPlan) -> None:
        for job in plan.delete:
            if not is_terminating(job):
                await delete(self._api, JOBS, job, propagation="Foreground")
        if plan.delete_jobset:
            await delete(self._api, JOBSETS, jobset, propagation="Foreground")
            return
        for obj in plan.ensure:
            await self._create(jobset, SERVICES if obj["kind"] == "Service" else PERSISTENT_VOLUME_CLAIMS, obj)
        for job in plan.create:
            await self._create(jobset, JOBS, job)
        for job, size in plan.resize:
            await self._update(JOBS, {**job, "spec": {**job["spec"], **size}})
        for job in plan.suspend:
            await self._update(JOBS, {**job, "spec": {**job["spec"], "suspend": True}})
        for job, template in plan.resume:
            await self._resume(job, template)
        if plan.status != jobset.get("status", {}):
            await self._update(JOBSETS, {**jobset, "status": plan.status}, subresource="status")
        for note in plan.notes:
            await self._events.record(jobset, note, action=_ACTION)

    async def _create(self, jobset: JsonObject, resource: GroupResource, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        existing = find(self._api, ObjectKey(resource, metadata["namespace"], metadata["name"]))
        if existing is not None and resource != JOBS:
            return
        try:
            await self._api.create(resource, obj, options=_OPTIONS)
        except StatusError as error:
            text = f"creation of {obj['kind']} {metadata['name']} failed: {error.message}"
            await self._events.record(jobset, Note("Warning", _FAILURES[resource], text), action=_ACTION)
            raise

    async def _resume(self, job: JsonObject, template: JsonObject) -> None:
        if "startTime" in job.get("status", {}):
            # The pod template of a Job that has a start time is immutable.
            status = {field: value for field, value in job["status"].items() if field != "startTime"}
            job = await self._update(JOBS, {**job, "status": status}, subresource="status")
        await self._update(JOBS, resume_job(job, template))

    async def _update(self, resource: GroupResource, obj: JsonObject, *, subresource: str | None = None) -> JsonObject:
        return await self._api.update(resource, obj, subresource=subresource, options=_OPTIONS)
