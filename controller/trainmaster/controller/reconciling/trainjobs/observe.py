"""Observe: what the caches say about one TrainJob, taken together at one moment.

A runtime that the cache does not hold is read from the server before anybody is told that there is none: TrainJobs and
runtimes come by watches of their own, in no common order, so of two that are created in a row the second may be seen
first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import orjson

from trainmaster.controller.kube.cache.store import StoreReader, object_key
from trainmaster.controller.kube.rest.errors import Forbidden, NotFound
from trainmaster.controller.kube.rest.missing_rights import ASK
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.owned_objects import OWNER_INDEX, owner_value
from trainmaster.controller.reconciling.trainjobs.deleted_workloads import DeletedWorkload
from trainmaster.controller.reconciling.trainjobs.event_handlers import plugin_index, plugin_indexes
from trainmaster.controller.resources import RUNTIMES
from trainmaster.runtime.api import ObjectUnreadable, TrainJob
from trainmaster.runtime.api.constants import snapshot_name
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject, copy_json
from trainmaster.runtime.listers import NoSuchIndex
from trainmaster.runtime.names import dns_label, dns_subdomain
from trainmaster.runtime.ownership import is_controlled_by
from trainmaster.runtime.validation.runtime_ref import live_runtime, runtime_key, unsupported_runtime

GroupVersionKind = tuple[str, str]
"""API version and kind."""

ObjectIdentity = tuple[str, str, str]
"""API version, kind and name."""

CONFIG_MAP: GroupVersionKind = ("v1", "ConfigMap")

_UNREADABLE: Final = orjson.dumps(UNREADABLE)
"""What is found in the JSON of every object of which only the metadata could be read."""

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
        stores: The caches by kind, each with its resource; those of workloads have the index `OWNER_INDEX`.
        more: Objects that no cache holds (any more, or yet), by API version, kind and key.
        shared: Objects that are handed out as they are, by the same.
        workloads: The kinds of workloads.
    """

    def __init__(
        self,
        stores: Mapping[GroupVersionKind, tuple[Resource, StoreReader]],
        more: Mapping[tuple[str, str, str], JsonObject] | None = None,
        *,
        shared: Mapping[tuple[str, str, str], JsonObject] | None = None,
        workloads: Collection[GroupVersionKind] = (),
    ) -> None:
        self._stores = stores
        self._more = more or {}
        self._shared = shared or {}
        self.workload_kinds = workloads

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        """Return one object, or None when no cache holds it.

        Raises:
            ObjectUnreadable: A cache holds it, but only its metadata could be read.
        """
        key = _key(namespace, name)
        if (shared := self._shared.get((api_version, kind, key))) is not None:
            return shared
        if (api_version, kind, key) in self._more:
            return copy_json(self._more[api_version, kind, key])
        _, store = self._stores.get((api_version, kind), (None, None))
        obj = None if store is None else store.get(key)
        return None if obj is None else _readable(obj)

    def body(self, api_version: str, kind: str, namespace: str | None, name: str) -> bytes | None:
        """Return the JSON of one object, or None when no cache holds it; of some there is but the metadata."""
        key = _key(namespace, name)
        if (obj := self._more.get((api_version, kind, key))) is not None:
            return orjson.dumps(obj)
        _, store = self._stores.get((api_version, kind), (None, None))
        return None if store is None else store.body(key)

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
        cached = () if store is None else map(_readable, store.each(namespace))
        return self._with_more(api_version, kind, cached, namespace) if self._more else cached

    def by_index(self, api_version: str, kind: str, index: str, value: str) -> Iterable[JsonObject]:
        """Return the cached objects that an index of a plugin has under a value; each is decoded when its turn comes.

        Raises:
            NoSuchIndex: Nobody declared it.
            ObjectUnreadable: When the turn comes of one of which only the metadata could be read.
        """
        _, store = self._stores.get((api_version, kind), (None, None))
        if store is None:
            return ()
        if plugin_index(index) not in store.index_names():
            raise NoSuchIndex(kind, index, plugin_indexes(store))
        return map(_readable, store.by_index(plugin_index(index), value))

    def is_served(self, api_version: str, kind: str) -> bool:
        """Tell whether the server serves a kind that somebody declared."""
        _, store = self._stores.get((api_version, kind), (None, None))
        return store is not None and store.is_served

    def workloads(self, job: TrainJob) -> Iterable[JsonObject]:
        """Return the workloads that a TrainJob controls, of its namespace; each is decoded when its turn comes.

        Raises:
            ObjectUnreadable: When the turn comes of one of which only the metadata could be read.
        """
        for api_version, kind in self.workload_kinds:
            _, store = self._stores[api_version, kind]
            namespace = job.metadata.namespace
            cached = map(_readable, store.by_index(OWNER_INDEX, owner_value(namespace, job.metadata.uid)))
            found = self._with_more(api_version, kind, cached, namespace) if self._more else cached
            yield from (obj for obj in found if is_controlled_by(obj, job))

    def workload_size(self, job: TrainJob) -> int:
        """Return how many bytes the caches have of the workloads of a TrainJob, without decoding any."""
        stores = (self._stores[kind][1] for kind in self.workload_kinds)
        owner = owner_value(job.metadata.namespace, job.metadata.uid)
        return sum(store.size(key) for store in stores for key in store.index_keys(OWNER_INDEX, owner))

    def _with_more(
        self, api_version: str, kind: str, cached: Iterable[JsonObject], namespace: str | None
    ) -> Iterator[JsonObject]:
        more = {key: obj for (*gvk, key), obj in self._more.items() if gvk == [api_version, kind]}
        yield from (obj for obj in cached if object_key(obj) not in more)
        yield from (copy_json(obj) for obj in more.values() if namespace in (None, obj["metadata"].get("namespace")))

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that is cached."""
        resource, _ = self._stores.get((api_version, kind), (None, None))
        return resource

    def with_objects(self, objects: Iterable[JsonObject]) -> StoreListers:
        """Return the same listers with more objects, which no cache holds (any more, or yet)."""
        return StoreListers(self._stores, {**self._more, **_by_key(objects)}, workloads=self.workload_kinds)

    def sharing(self, objects: Iterable[JsonObject]) -> StoreListers:
        """Return the same listers for those who change nothing: of these objects `get` returns no copies."""
        return StoreListers(self._stores, self._more, shared=_by_key(objects), workloads=self.workload_kinds)


def identity_of(obj: JsonObject) -> ObjectIdentity:
    """Return what tells an object from all others of its namespace."""
    return obj["apiVersion"], obj["kind"], obj["metadata"]["name"]


def _by_key(objects: Iterable[JsonObject]) -> dict[tuple[str, str, str], JsonObject]:
    return {(obj["apiVersion"], obj["kind"], object_key(obj)): obj for obj in objects}


def _key(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _readable(obj: JsonObject) -> JsonObject:
    if UNREADABLE in obj:
        raise ObjectUnreadable(obj)
    return obj


class Observed(NamedTuple):
    """One TrainJob and what belongs to it, decoded from the caches for this reconcile alone."""

    job: TrainJob
    raw: JsonObject
    """The TrainJob as the server gave it."""

    snapshot: bytes | None
    """The JSON of the ConfigMap with the name of the runtime snapshot, whoever owns it; few need it decoded."""

    runtime: bytes | None
    """The JSON of the live runtime that the TrainJob names; it is of no interest any more when there is a snapshot."""

    workloads: Mapping[ObjectIdentity, JsonObject]
    """The workloads that it controls: objects of the kinds that plugins declared to be such."""

    listers: StoreListers

    deleted_workloads: Sequence[DeletedWorkload] = ()
    """Workloads that it had and that are gone, as far as their last states are known."""

    snapshot_digest: str = ""
    """Of the snapshot that was frozen for it, as far as that is known."""

    runtime_denied: str | None = None
    """Why nobody knows whether there is a runtime: it may not be read."""

    @property
    def size(self) -> int:
        """How many bytes the caches have of what a plan is made from, apart from the TrainJob itself."""
        job, listers, size = self.job.metadata, self.listers, 0
        if self.snapshot is not None:
            size += listers.size(*CONFIG_MAP, job.namespace, snapshot_name(job.name))
        if self.workloads:
            size += listers.workload_size(self.job)
        if self.runtime is not None:
            resource = RUNTIMES[self.job.spec.runtime_ref.kind]
            namespace = job.namespace if resource.namespaced else None
            size += listers.size(resource.api_version, resource.kind, namespace, self.job.spec.runtime_ref.name)
        return size

    def read_snapshot(self) -> JsonObject | None:
        """Decode the snapshot, if there is one.

        Raises:
            ObjectUnreadable: Only its metadata could be read.
        """
        return None if self.snapshot is None else _readable(orjson.loads(self.snapshot))

    def existing(self, api_version: str, kind: str, name: str) -> JsonObject | None:
        """Return an object in the namespace of the TrainJob, not to be changed."""
        if (own := self.workloads.get((api_version, kind, name))) is not None:
            return own
        return self.listers.get(api_version, kind, self.job.metadata.namespace, name)

    def is_workload(self, identity: ObjectIdentity) -> bool:
        """Tell whether an object is of a kind of workloads."""
        return identity[:2] in self.listers.workload_kinds

    def deletion_seen(self, identity: ObjectIdentity) -> bool:
        """Tell whether the deletion of a workload was seen, so that it is known whether that had ended by then."""
        return any(each.seen for each in self.deleted_workloads if identity_of(each.state) == identity)


def observe(
    job: TrainJob, raw: JsonObject, listers: StoreListers, *, deleted_workloads: Iterable[DeletedWorkload] = ()
) -> Observed:
    """Look up everything that the decisions about a TrainJob rest on.

    Args:
        job: The TrainJob.
        raw: The same, as the server gave it.
        listers: The caches.
        deleted_workloads: The last known states of workloads that it had.

    Raises:
        ObjectUnreadable: Its runtime or a workload of it exists but cannot be read.
    """
    namespace, name = job.metadata.namespace, job.metadata.name
    snapshot = listers.body(*CONFIG_MAP, namespace, snapshot_name(name))
    wants_runtime = snapshot is None and unsupported_runtime(job.spec.runtime_ref) is None
    runtime = listers.body(*runtime_key(job)) if wants_runtime else None
    if runtime is not None and _UNREADABLE in runtime:
        raise ObjectUnreadable(orjson.loads(runtime))
    workloads = {identity_of(each): each for each in listers.workloads(job)}
    gone = [
        each
        for each in deleted_workloads
        if identity_of(each.state) not in workloads and is_controlled_by(each.state, job)
    ]
    return Observed(
        job=job,
        raw=raw,
        snapshot=snapshot,
        runtime=runtime,
        workloads=workloads,
        listers=listers,
        deleted_workloads=gone,
        snapshot_digest=job.status.runtime_snapshot_digest,
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
        instead = "" if resource.namespaced else "name a TrainingRuntime of this namespace, or "
        raise RuntimeDenied(
            f'{resource.kind} "{reference.name}" cannot be read: Trainmaster may not get {resource.name} here; '
            f"{instead}{ASK}"
        ) from error
    return listers.with_objects([runtime])
