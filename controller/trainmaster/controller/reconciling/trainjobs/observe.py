"""Observe: what the caches say about one TrainJob, taken together at one moment.

A runtime that the cache does not hold is read from the server before anybody is told that there is none: TrainJobs and
runtimes come by watches of their own, in no common order, so of two that are created in a row the second may be seen
first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import orjson

from trainmaster.controller.kube.cache.store import Store, object_key
from trainmaster.controller.kube.rest.errors import Forbidden, NotFound
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import RUNTIMES
from trainmaster.runtime.api import ObjectUnreadable, TrainJob
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND, snapshot_name
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject, copy_json
from trainmaster.runtime.names import dns_label, dns_subdomain
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.validation.runtime_ref import live_runtime, unsupported_runtime

GroupVersionKind = tuple[str, str]
"""API version and kind."""

CONFIG_MAP: GroupVersionKind = ("v1", "ConfigMap")

POLICY_RULES: Final = tuple(
    PolicyRule(
        resource=resource,
        verbs=("get",),
        needed_by="trainjob_controller",
        reason="look twice for the runtime of a new TrainJob, past the cache",
    )
    for resource in RUNTIMES.values()
)


class StoreListers:
    """Listers over the stores of informers; see `trainmaster.runtime.listers`.

    Whoever reads an object gets it decoded anew: what a plugin does to it is not what the plan compares with.

    Args:
        stores: The caches by kind, each with its resource.
        more: Objects that no cache holds (any more, or yet), by API version, kind and key.
    """

    def __init__(
        self,
        stores: Mapping[GroupVersionKind, tuple[Resource, Store]],
        more: Mapping[tuple[str, str, str], JsonObject] | None = None,
    ) -> None:
        self._stores = stores
        self._more = more or {}

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object, or None when no cache holds it.

        Raises:
            ObjectUnreadable: A cache holds it, but only its metadata could be read.
        """
        key = _key(namespace, name)
        if (api_version, kind, key) in self._more:
            return copy_json(self._more[api_version, kind, key])
        _, store = self._stores.get((api_version, kind), (None, None))
        obj = None if store is None else store.get(key)
        return None if obj is None else _readable(obj)

    def size(self, api_version: str, kind: str, namespace: str | None, name: str) -> int:
        """Return how many bytes one object has, without decoding it; 0 when no cache holds it."""
        key = _key(namespace, name)
        if (api_version, kind, key) in self._more:
            return len(orjson.dumps(self._more[api_version, kind, key]))
        _, store = self._stores.get((api_version, kind), (None, None))
        return 0 if store is None else store.size(key)

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Return all cached objects of a kind; each is decoded when its turn comes.

        Raises:
            ObjectUnreadable: When the turn comes of one of which only the metadata could be read.
        """
        _, store = self._stores.get((api_version, kind), (None, None))
        return () if store is None else map(_readable, store.each(namespace))

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that is cached."""
        resource, _ = self._stores.get((api_version, kind), (None, None))
        return resource

    def with_object(self, obj: JsonObject) -> StoreListers:
        """Return the same listers with one more object, which no cache holds (any more, or yet)."""
        return StoreListers(self._stores, {**self._more, (obj["apiVersion"], obj["kind"], object_key(obj)): obj})


def _key(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _readable(obj: JsonObject) -> JsonObject:
    if UNREADABLE in obj:
        raise ObjectUnreadable(obj)
    return obj


@dataclass(frozen=True, slots=True)
class Observed:
    """One TrainJob and what belongs to it, decoded from the caches for this reconcile alone."""

    job: TrainJob
    raw: JsonObject
    """The TrainJob as the server gave it."""

    snapshot: JsonObject | None
    """The ConfigMap with the name of the runtime snapshot, whoever owns it."""

    runtime: JsonObject | None
    """The live runtime that the TrainJob names; it is of no interest any more when there is a snapshot."""

    jobset: JsonObject | None
    """The JobSet of its name, whoever owns it."""

    listers: StoreListers

    deleted_workload: JsonObject | None = None
    """The last state of its JobSet, if that is gone and its last state is known (see `deleted_workloads`)."""

    runtime_denied: str | None = None
    """Why nobody knows whether there is a runtime: it may not be read."""

    @property
    def size(self) -> int:
        """How many bytes the caches have of what a plan is made from, apart from the TrainJob itself."""
        job, listers = self.job.metadata, self.listers
        size = listers.size(*CONFIG_MAP, job.namespace, snapshot_name(job.name))
        size += listers.size(JOBSET_API_VERSION, JOBSET_KIND, job.namespace, job.name)
        if self.runtime is not None:
            resource = RUNTIMES[self.job.spec.runtime_ref.kind]
            namespace = job.namespace if resource.namespaced else None
            size += listers.size(resource.api_version, resource.kind, namespace, self.job.spec.runtime_ref.name)
        return size

    def existing(self, api_version: str, kind: str, name: str) -> JsonObject | None:
        """Return an object in the namespace of the TrainJob, not to be changed."""
        namespace = self.job.metadata.namespace
        if (api_version, kind, name) == (JOBSET_API_VERSION, JOBSET_KIND, self.job.metadata.name):
            return self.jobset
        return self.listers.get(api_version, kind, namespace, name)


def observe(
    job: TrainJob, raw: JsonObject, listers: StoreListers, *, deleted_workload: JsonObject | None = None
) -> Observed:
    """Look up everything that the decisions about a TrainJob rest on.

    Args:
        job: The TrainJob.
        raw: The same, as the server gave it.
        listers: The caches.
        deleted_workload: The last known state of a JobSet that it had.

    Raises:
        ObjectUnreadable: Its runtime, its snapshot or its JobSet exists but cannot be read.
    """
    namespace, name = job.metadata.namespace, job.metadata.name
    snapshot = listers.get(*CONFIG_MAP, namespace, snapshot_name(name))
    wants_runtime = snapshot is None and unsupported_runtime(job.spec.runtime_ref) is None
    jobset = listers.get(JOBSET_API_VERSION, JOBSET_KIND, namespace, name)
    is_gone = jobset is None or not is_controlled_by(jobset, job)
    if deleted_workload is not None and not is_controlled_by(deleted_workload, job):
        deleted_workload = None
    return Observed(
        job=job,
        raw=raw,
        snapshot=snapshot,
        runtime=live_runtime(job, listers) if wants_runtime else None,
        jobset=jobset,
        listers=listers,
        deleted_workload=deleted_workload if is_gone else None,
    )


class RuntimeDenied(Exception):
    """There may be the runtime that a TrainJob names, but the manager may not read it."""


class APIReader(Protocol):
    """Reads objects from the server, past the caches."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        """Read one object; raises `NotFound`, or another error of the client."""


def lacks_runtime(job: TrainJob, listers: StoreListers) -> bool:
    """Tell whether a TrainJob names a runtime that the listers do not hold, and that there may be all the same."""
    reference = job.spec.runtime_ref
    if unsupported_runtime(reference) is not None or live_runtime(job, listers) is not None:
        return False
    # No object has any other name or namespace, and they would become a part of the path of the request.
    is_namespaced = RUNTIMES[reference.kind].namespaced
    return not dns_subdomain(reference.name) and not (is_namespaced and dns_label(job.metadata.namespace))


async def with_live_runtime(job: TrainJob, listers: StoreListers, api_reader: APIReader) -> StoreListers:
    """Return listers that hold the runtime that a TrainJob names, if there is one.

    Raises:
        RuntimeDenied: The manager may not read it.
        KubeError: The server could not be read from.
    """
    if not lacks_runtime(job, listers):
        return listers
    reference = job.spec.runtime_ref
    resource = RUNTIMES[reference.kind]
    try:
        runtime = await api_reader.get(
            resource, job.metadata.namespace if resource.namespaced else None, reference.name
        )
    except NotFound:
        return listers
    except Forbidden as error:
        role = "Role in this namespace" if resource.namespaced else "ClusterRole"
        instead = "" if resource.namespaced else ", or name a TrainingRuntime of this namespace"
        raise RuntimeDenied(
            f'{resource.kind} "{reference.name}" cannot be read: Trainmaster may not get {resource.name} here; '
            f"grant it get, list and watch by a {role}{instead}"
        ) from error
    return listers.with_object(runtime)
