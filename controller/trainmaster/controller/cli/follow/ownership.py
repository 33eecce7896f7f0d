"""Which pods and other objects belong to a run of a TrainJob: those that it owns, over JobSet and Jobs, by UID.

Names and labels do not tell: a TrainJob that was deleted and created again has the names of the one before, whose pods
may still be ending. Where we may not read what stands between, the time of creation decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.probes import BATCH_JOBS
from trainmaster.controller.container_failures import JOBSET_LABEL, JOBSET_UID_LABEL
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError, NotFound
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.api.constants import NODE
from trainmaster.runtime.jsontree import JsonObject

_CHAIN: Final[Mapping[str, Resource]] = {each.kind: each for each in (PODS, BATCH_JOBS, JOBSETS, TRAINJOBS)}
"""What may own what an event is about."""


class Ownership:
    """Which objects belong to which of some TrainJobs.

    Args:
        client: How owners are looked up.
        job: Returns a TrainJob that is followed by its UID.
    """

    def __init__(self, client: KubeClient, job: Callable[[str], JobStatus | None]) -> None:
        self._client = client
        self._job = job
        self._owners: dict[str, JobStatus | None] = {}
        """By UID; None for what belongs to nobody of ours."""

    async def of_pod(self, pod: JsonObject, named: JobStatus) -> JobStatus | None:
        """Return the job that a pod belongs to.

        Args:
            pod: The pod.
            named: The job that has the name which the pod's labels tell.
        """
        metadata = pod["metadata"]
        uid = metadata["uid"]
        if uid not in self._owners:
            jobset = {
                "kind": JOBSETS.kind,
                "name": metadata["labels"][JOBSET_LABEL],
                "uid": metadata["labels"].get(JOBSET_UID_LABEL),
            }
            if jobset["uid"] is None:  # JobSet before 0.6
                owners = metadata.get("ownerReferences") or ()
                jobset = next(iter(owners), jobset)
            self._owners[uid] = await self._of(jobset, named, created=metadata["creationTimestamp"])
            for owner in metadata.get("ownerReferences") or ():
                self._owners.setdefault(owner["uid"], self._owners[uid])
        return self._owners[uid]

    async def of_event(self, event: JsonObject, named: JobStatus) -> JobStatus | None:
        """Return the job that the object of an event belongs to; `named` is the one whose name begins its name."""
        return await self._of(event["regarding"], named, created=event["metadata"]["creationTimestamp"])

    async def _of(self, reference: JsonObject, named: JobStatus, *, created: str) -> JobStatus | None:
        kind, uid = reference.get("kind"), reference.get("uid")
        if uid is not None and (found := self._job(uid)) is not None:
            return found
        if uid in self._owners:
            return self._owners[uid]
        resource = _CHAIN.get(str(kind))
        if uid is None or resource is None:
            return named if created >= named.job.created else None
        try:
            owner = await self._client.get(resource, named.job.namespace, reference["name"])
        except NotFound:
            return None  # so what it owned goes as well
        except ApiError:
            return named if created >= named.job.created else None
        if owner["metadata"]["uid"] != uid or resource == TRAINJOBS:
            self._owners[uid] = None
            return None
        if resource == JOBSETS:
            named.nodes = named.nodes or nodes_of(owner)
        controllers = [each for each in owner["metadata"].get("ownerReferences") or () if each.get("controller")]
        self._owners[uid] = (
            await self._of(controllers[0], named, created=owner["metadata"]["creationTimestamp"])
            if controllers
            else None
        )
        return self._owners[uid]


def nodes_of(jobset: JsonObject) -> int | None:
    """Return how many pods of a JobSet train."""
    for replicated in jobset["spec"]["replicatedJobs"]:
        if replicated["name"] == NODE:
            job = replicated["template"]["spec"]
            return int(replicated.get("replicas", 1)) * int(job.get("completions") or job.get("parallelism") or 1)
    return None
