"""The Job controller: carries out what `plan` decides.

- The status that counts a pod is written before the pod's tracking finalizer goes.
- A pod whose Job is gone loses its tracking finalizer, so that nothing waits for a Job that will never count it.
- A finished Job with a time to live is deleted in the foreground when that time is over.
"""

from __future__ import annotations

from datetime import timedelta

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import JOBS, PODS
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import (
    ControlLoop,
    ExponentialBackoff,
    SingleLoopController,
    key_of,
)
from trainmaster.devcluster.controllers.indexer import Indexer, controller_uid, delete, find
from trainmaster.devcluster.controllers.job.children import TRACKING_FINALIZER, PodToCreate, build_pod, is_tracked
from trainmaster.devcluster.controllers.job.plan import JobPlan, plan_job
from trainmaster.devcluster.controllers.job.status import finished_condition, set_counter
from trainmaster.devcluster.controllers.objects import controller_of, is_terminating, parse_time, without_finalizer
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

CONTROLLER_NAME = "kubernetes.io/job-controller"
_OPTIONS = WriteOptions(field_manager="job-controller")
_POD_BACKOFF = ExponentialBackoff(base=1.0, cap=600.0)  # Kubernetes: 10 s, which nobody wants to wait on a laptop


class JobController(SingleLoopController):
    """Runs the Jobs that name no other controller in `spec.managedBy`; keys are Jobs, and pods that lost theirs.

    `pod_backoff` has the pauses before a failed pod is replaced.
    """

    def __init__(self, api: Api, *, pod_backoff: ExponentialBackoff = _POD_BACKOFF) -> None:
        self._api = api
        self._pod_backoff = pod_backoff
        self._pods = Indexer(controller_uid)
        self._events = EventRecorder(api, "job-controller")
        self._loop = ControlLoop("job", self._reconcile, api=api)
        self._loop.watch(PODS, self._pods.observe)
        self._loop.watch(JOBS, self._job_changed)
        self._loop.watch(PODS, self._pod_changed)

    def _job_changed(self, event: Event) -> None:
        self._loop.add(event.key)
        if event.type == "DELETED":
            for pod in self._pods.by_index(event.record.metadata["uid"]):
                self._loop.add(key_of(PODS, pod))

    def _pod_changed(self, event: Event) -> None:
        if event.type != "DELETED" and is_tracked(event.record.object) and self._job_of(event.record.object) is None:
            self._loop.add(event.key)
        for record in (event.record, event.previous):
            owner = None if record is None else controller_of(record.object)
            if owner is not None and owner["kind"] == "Job":
                self._loop.add(ObjectKey(JOBS, event.key.namespace, owner["name"]))

    def _job_of(self, pod: JsonObject) -> JsonObject | None:
        owner = controller_of(pod)
        if owner is None:
            return None
        job = find(self._api, ObjectKey(JOBS, pod["metadata"]["namespace"], owner["name"]))
        return job if job is not None and job["metadata"]["uid"] == owner["uid"] else None

    async def _reconcile(self, key: ObjectKey) -> float | None:
        obj = find(self._api, key)
        if obj is None:
            return None
        if key.resource == PODS:
            if is_tracked(obj) and self._job_of(obj) is None:
                await self._remove_tracking_finalizer(obj)
            return None
        if obj["spec"].get("managedBy", CONTROLLER_NAME) != CONTROLLER_NAME:
            return None
        pods = self._pods.by_index(obj["metadata"]["uid"])
        plan = plan_job(obj, pods, backoff=self._pod_backoff, now=self._api.clock())
        await self._apply(obj, plan)
        return await self._apply_ttl(obj) if finished_condition(obj) is not None else plan.requeue_after

    async def _apply(self, job: JsonObject, plan: JobPlan) -> None:
        refusal: StatusError | None = None
        for position, new in enumerate(plan.create):
            try:
                await self._create(job, new)
            except StatusError as error:
                # What holds for one pod (a quota, a broken template) mostly holds for the next ones.
                set_counter(plan.status, "active", plan.status.get("active", 0) - len(plan.create) + position)
                refusal = error
                break
        for pod in plan.delete_uncounted:
            await self._remove_tracking_finalizer(pod)
        for pod in [*plan.delete_uncounted, *plan.delete]:
            if await delete(self._api, PODS, pod):
                note = Note("Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
                await self._events.record(job, note)
        await self._write_status(job, plan.status)
        for pod in plan.untrack:
            await self._remove_tracking_finalizer(pod)
        for note in plan.notes:
            await self._events.record(job, note)
        if refusal is not None:
            raise refusal

    async def _create(self, job: JsonObject, new: PodToCreate) -> None:
        try:
            pod = await self._api.create(PODS, build_pod(job, new), options=_OPTIONS)
        except StatusError as error:
            await self._events.record(job, Note("Warning", "FailedCreate", f"Error creating: {error.message}"))
            raise
        note = Note("Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        await self._events.record(job, note)

    async def _write_status(self, job: JsonObject, status: JsonObject) -> None:
        if status != job.get("status", {}):
            await self._api.update(JOBS, {**job, "status": status}, subresource="status", options=_OPTIONS)

    async def _remove_tracking_finalizer(self, pod: JsonObject) -> None:
        """Remove the tracking finalizer, whatever else happened to the pod meanwhile."""
        current = find(self._api, key_of(PODS, pod))
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"] or not is_tracked(current):
            return
        await self._api.update(PODS, without_finalizer(current, TRACKING_FINALIZER), options=_OPTIONS)

    async def _apply_ttl(self, job: JsonObject) -> float | None:
        """Delete a finished Job whose time is over; otherwise return the seconds until then."""
        condition, lifetime = finished_condition(job), job["spec"].get("ttlSecondsAfterFinished")
        if condition is None or lifetime is None or is_terminating(job):
            return None
        end = parse_time(condition["lastTransitionTime"]) + timedelta(seconds=lifetime)
        left = (end - self._api.clock()).total_seconds()
        if left > 0:
            return left
        await delete(self._api, JOBS, job, propagation="Foreground")
        return None
