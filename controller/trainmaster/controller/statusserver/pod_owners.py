"""Kinship: which TrainJob does a pod belong to?

Guarantees:
- trainer S2: the answer follows the controllers of the pod, pod -> Job -> JobSet -> TrainJob, each by UID; that labels
  say the same is demanded, and not enough.
- Only metadata is read. Objects of one UID never change their controller here, so what was read serves all pods of a
  TrainJob for a short time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import JOBSETS
from trainmaster.controller.statusserver.memory import Memory
from trainmaster.controller.statusserver.token_review import PodIdentity
from trainmaster.runtime.api.constants import GROUP, JOBSET_GROUP, TRAINJOB_KIND
from trainmaster.runtime.jsontree import JsonObject

JOBS: Final = Resource("batch", "v1", "Job", "jobs", namespaced=True)

REMEMBERED_FOR: Final = 60.0
REMEMBERED: Final = 4096

_JOBSET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"


@dataclass(frozen=True, slots=True)
class _Controller:
    group: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Member:
    """What counts of an object."""

    jobset: str | None
    controller: _Controller | None


class Kinship:
    """Follows controllers.

    Args:
        client: Where metadata is read.
        clock: The time.
    """

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._memory: Memory[tuple[Resource, str, str, str], _Member] = Memory(limit=REMEMBERED, clock=clock)

    async def belongs(self, pod: PodIdentity, *, trainjob: str, uid: str) -> bool:
        """Tell whether a pod belongs to the TrainJob of a name in its namespace, and of a UID.

        Raises:
            KubeError: The API server could not be asked.
        """
        member = await self._member(PODS, pod.namespace, pod.name, pod.uid)
        if member is None or member.jobset != trainjob:
            return False
        job = _controller(member, JOBS.group, JOBS.kind)
        if job is None:
            return False
        member = await self._member(JOBS, pod.namespace, job.name, job.uid)
        jobset = _controller(member, JOBSET_GROUP, JOBSETS.kind)
        if jobset is None or jobset.name != trainjob:
            return False
        member = await self._member(JOBSETS, pod.namespace, jobset.name, jobset.uid)
        owner = _controller(member, GROUP, TRAINJOB_KIND)
        return owner is not None and (owner.name, owner.uid) == (trainjob, uid)

    async def _member(self, resource: Resource, namespace: str, name: str, uid: str) -> _Member | None:
        """Read the object of a name and a UID; None if there is no such object."""
        key = (resource, namespace, name, uid)
        member = self._memory.get(key)
        if member is None:
            try:
                obj = await self._client.get(resource, namespace, name, metadata_only=True)
            except NotFound:
                return None
            metadata = obj["metadata"]
            if metadata.get("uid") != uid:
                return None
            member = _Member((metadata.get("labels") or {}).get(_JOBSET_LABEL), _controller_of(metadata))
            self._memory.put(key, member, seconds=REMEMBERED_FOR)
        return member


def _controller(member: _Member | None, group: str, kind: str) -> _Controller | None:
    controller = member.controller if member else None
    return controller if controller and (controller.group, controller.kind) == (group, kind) else None


def _controller_of(metadata: JsonObject) -> _Controller | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            group = reference["apiVersion"].rpartition("/")[0]
            return _Controller(group, reference["kind"], reference["name"], reference["uid"])
    return None
