"""The others in the cluster: JobSet's controller, garbage collection, and users.

They act through the API in the same loop, after delays drawn from the seed, and are level-triggered: what they do
depends on the state that they find and not on how it came about. None of them ever fails.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from support.sim.server import SimServer

from trainmaster.controller.container_failures import JOBSET_UID_LABEL, REPLICATED_JOB_LABEL
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import DeleteOptions, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.apiserver.resources import JOBS, JOBSETS, NODES, PODS, GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.garbagecollector import GarbageCollector as Collector
from trainmaster.devcluster.controllers.jobset.status import COMPLETED, FAILED, SUSPENDED, set_condition
from trainmaster.devcluster.controllers.jobset.webhook import jobset_webhook
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jsontree import JsonObject, copy_tree

FAILURE = "ValueError: my loss is NaN"
"""What a container says that fails."""

_JOBSET_OPTIONS = WriteOptions(field_manager="jobset-controller-manager")
_USER_OPTIONS = WriteOptions(field_manager="user")


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a JobSet once it runs."""

    seconds: float | None = 5.0
    """How long it runs; None: for ever."""
    end: str = COMPLETED
    unready: float = 0.0
    """For how many of these seconds, the last, it is not ready."""


_ENDS = {
    COMPLETED: ("AllJobsCompleted", "jobset completed successfully"),
    FAILED: ("FailedJobs", "jobset failed due to one or more job failures"),
}


class Actor:
    """Attends to each object of some resources whenever it changes, and when something is due."""

    def __init__(self, server: SimServer, chooser: random.Random, *resources: GroupResource) -> None:
        self._server = server
        self._api = server.api
        self._chooser = chooser
        self._running_since: dict[str, float] = {}
        """By UID."""
        self._workers: dict[ObjectKey, asyncio.Event] = {}
        for resource in resources:
            self._api.store.subscribe(resource, self._note)

    def _note(self, event: Event) -> None:
        wakeup = self._workers.get(event.key)
        if wakeup is None:
            wakeup = self._workers[event.key] = asyncio.Event()
            self._server.spawn(self._attend(event.key, wakeup))
        wakeup.set()

    async def _attend(self, key: ObjectKey, wakeup: asyncio.Event) -> None:
        """Do what is due for the object of one name, for ever."""
        delay: float | None = None
        while True:
            try:
                async with asyncio.timeout(delay):
                    await wakeup.wait()
            except TimeoutError:
                pass
            wakeup.clear()
            await asyncio.sleep(self._chooser.uniform(0.05, 0.3))
            record = self._api.store.get(key)
            delay = None if record is None else await self._step(key, record.object)

    async def _step(self, key: ObjectKey, obj: JsonObject) -> float | None:
        """Do what is due; returns the seconds until something is."""
        raise NotImplementedError


@contextmanager
def unless_changed() -> Iterator[None]:
    """Leave it if somebody else was quicker: that is another event."""
    try:
        yield
    except StatusError as error:
        if error.code not in {404, 409}:
            raise


class JobSetActor(Actor):
    """Sets the status of JobSets as their controller does, without Jobs and pods; admits them as its webhooks do."""

    resource = JOBSETS

    def __init__(self, server: SimServer, chooser: random.Random, fates: Mapping[str, Fate]) -> None:
        super().__init__(server, chooser, self.resource)
        self._fates = fates
        if self.resource == JOBSETS:
            self._api.add_admission(JOBSETS, jobset_webhook(self._api.registry))

    async def _step(self, key: ObjectKey, obj: JsonObject) -> float | None:
        if "deletionTimestamp" in obj["metadata"]:
            return None
        status: JsonObject = copy_tree(obj.get("status") or {})
        delay = self._advance(obj, status)
        if status != obj.get("status"):
            changed, options = {**obj, "status": status}, _JOBSET_OPTIONS
            with unless_changed():
                await self._api.update(
                    self.resource, changed, namespace=key.namespace, subresource="status", options=options
                )
        return delay

    def _advance(self, jobset: JsonObject, status: JsonObject) -> float | None:
        spec, uid, now = jobset["spec"], jobset["metadata"]["uid"], asyncio.get_running_loop().time()
        if status.get("terminalState"):
            return None
        status.setdefault("restarts", 0)
        if spec.get("suspend"):
            self._running_since.pop(uid, None)
            _suspend(status, suspended=True, now=self._api.clock())
            _count(spec, status, "suspended")
            return None
        _suspend(status, suspended=False, now=self._api.clock())
        fate = self._fates.get(jobset["metadata"]["name"], Fate())
        since = self._running_since.get(uid)
        if since is None:
            self._running_since[uid] = now
            _count(spec, status, "active")
            return 1.0
        if fate.seconds is None or now < since + fate.seconds:
            left = None if fate.seconds is None else since + fate.seconds - now
            is_ready = left is None or left > fate.unready
            _count(spec, status, "active", *(["ready"] if is_ready else []))
            return left - fate.unready if left is not None and is_ready else left
        _count(spec, status, "succeeded" if fate.end == COMPLETED else "failed")
        status["terminalState"] = fate.end
        set_condition(status, fate.end, *_ENDS[fate.end], now=self._api.clock())
        return None


class JobActor(JobSetActor):
    """Sets the status of Jobs as their controller does, without pods."""

    resource = JOBS

    def _advance(self, job: JsonObject, status: JsonObject) -> float | None:
        spec, uid, now = job["spec"], job["metadata"]["uid"], asyncio.get_running_loop().time()
        if any(each["type"] in ("Complete", "Failed") for each in status.get("conditions") or ()):
            return None
        if spec.get("suspend"):
            self._running_since.pop(uid, None)
            for field in ("active", "startTime"):
                status.pop(field, None)
            return None
        moment = timestamp(self._api.clock())
        status["active"] = spec["parallelism"]
        status.setdefault("startTime", moment)
        since = self._running_since.setdefault(uid, now)
        fate = self._fates.get(job["metadata"]["name"], Fate())
        if fate.seconds is None or now < since + fate.seconds:
            return None if fate.seconds is None else since + fate.seconds - now
        del status["active"]
        before, end = ("SuccessCriteriaMet", "Complete") if fate.end == COMPLETED else ("FailureTarget", "Failed")
        for condition in (before, end):
            set_condition(status, condition, "Ended", "it has ended", now=self._api.clock())
        if fate.end == COMPLETED:
            status |= {"completionTime": moment, "succeeded": spec["completions"]}
        return None


def _suspend(status: JsonObject, *, suspended: bool, now: datetime) -> None:
    reason, message = ("SuspendedJobs", "jobset is suspended") if suspended else ("ResumeJobs", "jobset is resumed")
    set_condition(status, SUSPENDED, reason, message, value=suspended, now=now)


def _count(spec: JsonObject, status: JsonObject, *states: str) -> None:
    status["replicatedJobsStatus"] = [
        {
            "name": job["name"],
            **{
                state: job.get("replicas", 1) if state in states else 0
                for state in ("ready", "succeeded", "failed", "active", "suspended")
            },
        }
        for job in spec["replicatedJobs"]
    ]


class GarbageCollector:
    """The garbage collector of the embedded cluster, as late as a real one."""

    def __init__(self, server: SimServer, chooser: random.Random, *, delay: float = 2.0) -> None:
        self._server = server
        self._chooser = chooser
        self._delay = delay
        self._collector = Collector(server.api)

    async def run(self) -> None:
        """Collect for ever."""
        (loop,) = self._collector.loops
        loop.start()
        while True:
            await loop.run_ready()
            await self._server.change()
            await asyncio.sleep(self._chooser.uniform(0.5, 1.0) * self._delay)


class User:
    """Does what users do, by the API."""

    def __init__(self, server: SimServer) -> None:
        self._api = server.api

    async def create(self, resource: GroupResource, obj: JsonObject) -> None:
        """Create an object."""
        await self._api.create(resource, obj, namespace=obj["metadata"].get("namespace"), options=_USER_OPTIONS)

    async def patch(self, resource: GroupResource, namespace: str, name: str, patch: JsonObject) -> None:
        """Merge a patch into an object."""
        await self._api.patch(resource, namespace, name, patch, patch_type=PatchType.MERGE, options=_USER_OPTIONS)

    async def fail_pod(self, name: str) -> None:
        """Show a pod of a JobSet whose container has failed, as the kubelet leaves it."""
        jobset = self.find(JOBSETS, "default", name) or {}
        labels = {JOBSET_LABEL: name, JOBSET_UID_LABEL: jobset["metadata"]["uid"], REPLICATED_JOB_LABEL: "node"}
        container = {"name": "node", "image": "train:1"}
        pods = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": _owned_by(jobset, f"{name}-node-0")}
        await self.create(JOBS, {**job, "spec": {"suspend": True, "template": pods}})  # so that nobody works on it
        owner = self.find(JOBS, "default", f"{name}-node-0") or {}
        metadata = {**_owned_by(owner, f"{name}-node-0-0"), "labels": labels}
        await self.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **pods})
        ended = {"exitCode": 1, "reason": "Error", "message": FAILURE, "finishedAt": "2026-01-01T00:00:05Z"}
        status = {**container, "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
        await self._api.patch(
            PODS,
            "default",
            f"{name}-node-0-0",
            {"status": {"phase": "Failed", "containerStatuses": [status]}},
            patch_type=PatchType.MERGE,
            subresource="status",
            options=_USER_OPTIONS,
        )

    async def lose_node(self, name: str) -> None:
        """Say that nothing is heard of a node any more, as the node lifecycle controller does."""
        at = timestamp(self._api.clock())
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": at}
        status = {"status": {"conditions": [condition]}}
        patch_type = PatchType.MERGE
        await self._api.patch(
            NODES, "", name, status, patch_type=patch_type, subresource="status", options=_USER_OPTIONS
        )

    async def delete(self, resource: GroupResource, namespace: str, name: str) -> None:
        """Delete an object."""
        await self._api.delete(resource, namespace, name, options=DeleteOptions(propagation="Background"))

    def find(self, resource: GroupResource, namespace: str, name: str) -> JsonObject | None:
        """Return an object if it is there."""
        record = self._api.store.get(ObjectKey(resource, namespace, name))
        return None if record is None else record.object


def _owned_by(owner: JsonObject, name: str) -> JsonObject:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        **{field: owner["metadata"][field] for field in ("name", "uid")},
    }
    return {"name": name, "namespace": "default", "ownerReferences": [{**reference, "controller": True}]}
