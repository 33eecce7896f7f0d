"""The owners of a pod: which TrainJob does it belong to?

Guarantees:
- trainer S2: the answer follows the controllers of the pod, pod -> Job -> JobSet -> TrainJob, each by UID; that labels
  say the same is demanded, and not enough.
- Only metadata is read. Objects of one UID never change their controller here, so what was read serves all pods of a
  TrainJob for a short time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import JOBSETS
from trainmaster.controller.statusserver.token_review import PodIdentity
from trainmaster.runtime.api.constants import GROUP, JOBSET_GROUP, TRAINJOB_KIND
from trainmaster.runtime.jsontree import JsonObject

JOBS: Final = Resource("batch", "v1", "Job", "jobs", namespaced=True)

CACHED_FOR: Final = 60.0
"""Seconds."""

CACHE_SIZE: Final = 4096

_JOBSET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"


@dataclass(frozen=True, slots=True)
class _Controller:
    group: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Dependent:
    """What counts of an object that another one controls."""

    jobset: str | None
    controller: _Controller | None


class PodOwners:
    """Follows controllers.

    Args:
        client: Where metadata is read.
        clock: The time.
    """

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._cache: TTLCache[tuple[Resource, str, str, str], _Dependent] = TTLCache(
            CACHE_SIZE, ttl=CACHED_FOR, timer=clock.monotonic
        )

    async def is_owned(self, pod: PodIdentity, *, trainjob: str, uid: str) -> bool:
        """Tell whether the owner of a pod is the TrainJob of a name in its namespace, and of a UID.

        Raises:
            KubeError: The API server could not be asked.
        """
        dependent = await self._read(PODS, pod.namespace, pod.name, pod.uid)
        if dependent is None or dependent.jobset != trainjob:
            return False
        job = _controller(dependent, JOBS.group, JOBS.kind)
        if job is None:
            return False
        dependent = await self._read(JOBS, pod.namespace, job.name, job.uid)
        jobset = _controller(dependent, JOBSET_GROUP, JOBSETS.kind)
        if jobset is None or jobset.name != trainjob:
            return False
        dependent = await self._read(JOBSETS, pod.namespace, jobset.name, jobset.uid)
        owner = _controller(dependent, GROUP, TRAINJOB_KIND)
        return owner is not None and (owner.name, owner.uid) == (trainjob, uid)

    async def _read(self, resource: Resource, namespace: str, name: str, uid: str) -> _Dependent | None:
        """Read the object of a name and a UID; None if there is no such object."""
        key = (resource, namespace, name, uid)
        dependent = self._cache.get(key)
        if dependent is None:
            try:
                obj = await self._client.get(resource, namespace, name, metadata_only=True)
            except NotFound:
                return None
            metadata = obj["metadata"]
            if metadata.get("uid") != uid:
                return None
            dependent = _Dependent((metadata.get("labels") or {}).get(_JOBSET_LABEL), _controller_of(metadata))
            self._cache[key] = dependent
        return dependent


def _controller(dependent: _Dependent | None, group: str, kind: str) -> _Controller | None:
    controller = dependent.controller if dependent else None
    return controller if controller and (controller.group, controller.kind) == (group, kind) else None


def _controller_of(metadata: JsonObject) -> _Controller | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            group = reference["apiVersion"].rpartition("/")[0]
            return _Controller(group, reference["kind"], reference["name"], reference["uid"])
    return None
