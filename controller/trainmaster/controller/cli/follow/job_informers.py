"""What a cluster tells of followed jobs: the jobs, their pods, and events, one observation after the other, and
which of these belong to which of the jobs.

- The informers neither log nor give up: that the cluster is away, or refuses something, is told to whoever follows.
- What belongs to a job is told by UIDs: those of its JobSet, and of itself where it owns its pods. Names and labels do
  not tell: a job that was deleted and created again has the names of the one before, whose pods may still be ending. Of
  other objects, and where we may not read, the time of creation decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.controller.cli.follow.job_status import FollowedJob, JobStatus, job_name_of
from trainmaster.controller.cli.probes import BATCH_JOBS
from trainmaster.controller.container_failures import JOBSET_UID_LABEL
from trainmaster.controller.explain.pods import is_own
from trainmaster.controller.job_fields import JobFields
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions
from trainmaster.controller.kube.cache.outages import Outages
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import EVENTS, PODS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jsontree import JsonObject

_BELONGINGS: Final[Mapping[str, Resource]] = {each.kind: each for each in (PODS, BATCH_JOBS, JOBSETS)}
"""What TrainJobs own, and events are about."""


class Reachability:
    """Reports outages and refusals of some informers, which call `changed` and share `outages`.

    `on_outage` gets the reason when the cluster cannot be reached, and None when it can again; `on_refusal` each new
    reason for which something cannot be read, and what to do about it.
    """

    def __init__(self, *, on_outage: Callable[[str | None], object], on_refusal: Callable[[str], object]) -> None:
        self.outages = Outages(logs=False)
        self._on_outage = on_outage
        self._on_refusal = on_refusal
        self._away: set[Informer] = set()
        """The informers that cannot reach the cluster."""

        self._refusals: set[tuple[str, str]] = set()

    def changed(self, informer: Informer) -> None:
        """Take note of how an informer fares."""
        failures = [each.failure for each in informer.reflectors.values() if each.failure is not None]
        outage = next((failure for failure in failures if failure.is_outage), None)
        if outage is not None:
            if not self._away:
                self._on_outage(str(outage.error))
            self._away.add(informer)
        elif informer in self._away:
            self._away.remove(informer)
            if not self._away:
                self._on_outage(None)
        for failure in failures:
            refusal = informer.name, failure.text
            if not failure.is_outage and refusal not in self._refusals:
                self._refusals.add(refusal)
                self._on_refusal(failure.text)


class Ownership:
    """Which objects belong to which of some jobs."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[str, bool] = {}
        """By UID."""

    async def of_pod(self, pod: JsonObject, named: JobStatus) -> bool:
        """Whether a pod belongs to the job that has the name which its labels tell."""
        metadata, job = pod["metadata"], named.job
        if not is_own(pod, JobFields({"kind": job.resource.kind, "metadata": {"uid": job.uid}})):
            return False
        owner = {"kind": JOBSETS.kind, "name": job_name_of(pod), "uid": metadata["labels"].get(JOBSET_UID_LABEL)}
        if owner["uid"] is None:  # JobSet before 0.6, and jobs that own their pods themselves
            owner = next(iter(metadata.get("ownerReferences") or ()), owner)
        return await self._is_of(owner, named, created=metadata["creationTimestamp"])

    async def of_event(self, event: JsonObject, named: JobStatus) -> bool:
        """Whether the object of an event belongs to the job whose name begins its name."""
        return await self._is_of(event["regarding"], named, created=event["metadata"]["creationTimestamp"])

    async def _is_of(self, reference: JsonObject, status: JobStatus, *, created: str) -> bool:
        job, kind, uid = status.job, reference.get("kind"), reference.get("uid")
        if kind == job.resource.kind:
            return bool(uid == job.uid)
        resource = _BELONGINGS.get(str(kind))
        if uid is None or resource is None:
            return created >= job.created
        if uid not in self._known:
            try:
                found = await self._client.get(resource, job.namespace, reference["name"])
            except NotFound:
                return False  # so what it owned goes as well
            except ApiError:
                return created >= job.created
            self._known[uid] = found["metadata"]["uid"] == uid and _is_made_for(found["metadata"], resource, job)
            if resource == JOBSETS and self._known[uid]:
                nodes = sum(each.pods for each in JobFields({}).pod_sets(found) if each.is_node)
                status.nodes = status.nodes or nodes or None
        return self._known[uid]


def _is_made_for(metadata: JsonObject, resource: Resource, job: FollowedJob) -> bool:
    if resource == JOBSETS:
        return any(owner["uid"] == job.uid for owner in metadata.get("ownerReferences") or ())
    return bool(metadata["creationTimestamp"] >= job.created)


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of an object."""

    resource: Resource
    object: JsonObject
    is_deleted: bool = False
    """Whether it is the last one."""


class JobInformers:
    """Reads what there is of some jobs, and what becomes of it.

    The callbacks are those of `Reachability`.
    """

    def __init__(
        self,
        client: KubeClient,
        jobs: Sequence[FollowedJob],
        *,
        on_outage: Callable[[str | None], object],
        on_refusal: Callable[[str], object],
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._reachability = Reachability(on_outage=on_outage, on_refusal=on_refusal)
        self._observations: asyncio.Queue[Observation] = asyncio.Queue()
        self._informers = [informer for namespace in _namespaces(jobs) for informer in self._of(namespace)]

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())

    async def next(self) -> Observation:
        """Return the next observation; `done` is to be called when it was taken note of."""
        return await self._observations.get()

    def done(self) -> None:
        """Tell that an observation was taken note of."""
        self._observations.task_done()

    async def absent(self) -> list[FollowedJob]:
        """Return the jobs that were deleted before they could be read: no observation will come of those."""
        for informer in self._informers:
            await informer.wait_synced()
        await self._observations.join()
        stores = [(informer.resource, informer.store) for informer in self._informers]
        return [
            job
            for job in self._jobs
            if all(store.get(job.key) is None for resource, store in stores if resource == job.resource)
        ]

    async def catch_up(self) -> None:
        """Wait until note was taken of all pods as they are now: the informers of different kinds wait for nobody."""
        for namespace in _namespaces(self._jobs):
            for selector in self._selectors(namespace):
                try:
                    pods = await self._client.list(PODS, namespace, label_selector=selector)
                except KubeError:
                    continue
                for pod in pods["items"]:
                    self._observations.put_nowait(Observation(PODS, pod))
        await self._observations.join()

    def _of(self, namespace: str) -> list[Informer]:
        kinds = dict.fromkeys(job.resource for job in self._jobs if job.namespace == namespace)
        return [
            *(self._informer(resource, namespace) for resource in kinds),
            *(self._informer(PODS, namespace, selector) for selector in self._selectors(namespace)),
            self._informer(EVENTS, namespace),
        ]

    def _informer(self, resource: Resource, namespace: str, selector: str | None = None) -> Informer:
        informer = Informer(
            self._client,
            resource,
            InformerOptions(namespaces=[namespace], label_selector=selector),
            outages=self._reachability.outages,
            on_state_change=self._reachability.changed,
        )

        def observe(delta: Delta) -> None:
            # That events expire, and how often they repeat, is no news.
            if delta.is_addition or resource != EVENTS:
                obj = (delta.old if delta.is_deletion else delta.new) or {}
                self._observations.put_nowait(Observation(resource, obj, is_deleted=delta.is_deletion))

        informer.add_event_handler(observe)
        return informer

    def _selectors(self, namespace: str) -> list[str]:
        """Return what selects the pods: those of TrainJobs and those of other jobs have labels of their own."""
        names: dict[str, list[str]] = {}
        for job in self._jobs:
            if job.namespace == namespace:
                names.setdefault(JOBSET_LABEL if job.resource == TRAINJOBS else JOB_NAME_LABEL, []).append(job.name)
        return [f"{label} in ({','.join(sorted(each))})" for label, each in names.items()]


def _namespaces(jobs: Sequence[FollowedJob]) -> list[str]:
    return sorted({job.namespace for job in jobs})
