"""The Job controller: carries out what `deciding` decides.

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
from trainmaster.devcluster.controllers.client import delete, find
from trainmaster.devcluster.controllers.index import ChildIndex
from trainmaster.devcluster.controllers.job.conditions import finished_condition
from trainmaster.devcluster.controllers.job.plan import Step, decide
from trainmaster.devcluster.controllers.job.pods import TRACKING_FINALIZER, NewPod, build_pod, is_tracked
from trainmaster.devcluster.controllers.loop import ControllerLoop, SingleLoop, key_of
from trainmaster.devcluster.controllers.objects import (
    controller_reference,
    is_terminating,
    parse_time,
    without_finalizer,
)
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.runtime.jsontree import JsonObject

MANAGER = "kubernetes.io/job-controller"
_OPTIONS = WriteOptions(field_manager="job-controller")


class JobController(SingleLoop):
    """Runs the Jobs that name no other controller in `spec.managedBy`; keys are Jobs, and pods that lost theirs."""

    def __init__(self, api: Api, *, settings: ControllerSettings) -> None:
        self._api = api
        self._settings = settings
        self._pods = ChildIndex()
        self._events = EventRecorder(api, "job-controller")
        self._loop = ControllerLoop("job", self._reconcile, api=api, settings=settings)
        self._loop.watch(PODS, self._pods.observe)
        self._loop.watch(JOBS, self._job_changed)
        self._loop.watch(PODS, self._pod_changed)

    def _job_changed(self, event: Event) -> None:
        self._loop.add(event.key)
        if event.type == "DELETED":
            for pod in self._pods.of(event.record.metadata["uid"]):
                self._loop.add(key_of(PODS, pod))

    def _pod_changed(self, event: Event) -> None:
        if event.type != "DELETED" and is_tracked(event.record.object) and self._job_of(event.record.object) is None:
            self._loop.add(event.key)
        for record in (event.record, event.previous):
            owner = None if record is None else controller_reference(record.object)
            if owner is not None and owner["kind"] == "Job":
                self._loop.add(ObjectKey(JOBS, event.key.namespace, owner["name"]))

    def _job_of(self, pod: JsonObject) -> JsonObject | None:
        owner = controller_reference(pod)
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
                await self._release(obj)
            return None
        if obj["spec"].get("managedBy", MANAGER) != MANAGER:
            return None
        step = decide(obj, self._pods.of(obj["metadata"]["uid"]), settings=self._settings, now=self._api.clock())
        await self._carry_out(obj, step)
        return await self._expire(obj) if finished_condition(obj) is not None else step.requeue_after

    async def _carry_out(self, job: JsonObject, step: Step) -> None:
        refusal: StatusError | None = None
        for position, new in enumerate(step.create):
            try:
                await self._create(job, new)
            except StatusError as error:
                # What holds for one pod (a quota, a broken template) mostly holds for the next ones.
                step.status["active"] -= len(step.create) - position
                refusal = error
                break
        for pod in step.discard:
            await self._release(pod)
        for pod in [*step.discard, *step.stop]:
            if await delete(self._api, PODS, pod):
                note = Note("Normal", "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")
                await self._events.record(job, note)
        await self._write_status(job, step.status)
        for pod in step.release:
            await self._release(pod)
        for note in step.notes:
            await self._events.record(job, note)
        if refusal is not None:
            raise refusal

    async def _create(self, job: JsonObject, new: NewPod) -> None:
        try:
            pod = await self._api.create(
                PODS, build_pod(job, new), namespace=job["metadata"]["namespace"], options=_OPTIONS
            )
        except StatusError as error:
            await self._events.record(job, Note("Warning", "FailedCreate", f"Error creating: {error.message}"))
            raise
        note = Note("Normal", "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        await self._events.record(job, note)

    async def _write_status(self, job: JsonObject, status: JsonObject) -> None:
        if status != job.get("status", {}):
            metadata = job["metadata"]
            await self._api.update(
                JOBS,
                {**job, "status": status},
                namespace=metadata["namespace"],
                name=metadata["name"],
                subresource="status",
                options=_OPTIONS,
            )

    async def _release(self, pod: JsonObject) -> None:
        """Remove the tracking finalizer, whatever else happened to the pod meanwhile."""
        current = find(self._api, key_of(PODS, pod))
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"] or not is_tracked(current):
            return
        metadata = current["metadata"]
        await self._api.update(
            PODS,
            without_finalizer(current, TRACKING_FINALIZER),
            namespace=metadata["namespace"],
            name=metadata["name"],
            options=_OPTIONS,
        )

    async def _expire(self, job: JsonObject) -> float | None:
        """Delete a finished Job whose time is over; otherwise tell when that will be."""
        condition, lifetime = finished_condition(job), job["spec"].get("ttlSecondsAfterFinished")
        if condition is None or lifetime is None or is_terminating(job):
            return None
        end = parse_time(condition["lastTransitionTime"]) + timedelta(seconds=lifetime)
        left = (end - self._api.clock()).total_seconds()
        if left > 0:
            return left
        await delete(self._api, JOBS, job, propagation="Foreground")
        return None
