"""What plugins and kinds of jobs may look at: listers over the stores of informers (see `runtime.listers`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

import orjson

from trainmaster.controller.kube.cache.store import Store, StoreReader, object_key
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_value
from trainmaster.controller.reconciling.writes import GroupVersionKind
from trainmaster.controller.resources import plugin_index, plugin_indexes
from trainmaster.runtime.api.decoding import ObjectUnreadable
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject, copy_json
from trainmaster.runtime.listers import NoSuchIndex
from trainmaster.runtime.ownership import is_controlled_by

_NOTHING: Final = Store()
"""The cache of a kind that nobody declared."""

_NOTHING.set_served(False)


class StoreListers:
    """Listers over the stores of informers; see `trainmaster.runtime.listers`.

    Whoever reads an object gets it decoded anew: what a plugin does to it is not what the plan compares with.

    Args:
        stores: The caches by kind, each with its resource; those of workloads, and of what is pruned, have the index
            `OWNER_INDEX`.
        more: Objects that no cache holds (any more, or yet), by API version, kind and key.
        shared: Objects that are handed out as they are, by the same.
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
        obj = self._store(api_version, kind).get(key)
        return None if obj is None else readable(obj)

    def body(self, api_version: str, kind: str, namespace: str | None, name: str) -> bytes | None:
        """Return the JSON of one object, or None when no cache holds it; of some there is but the metadata."""
        key = _key(namespace, name)
        if (obj := self._more.get((api_version, kind, key))) is not None:
            return orjson.dumps(obj)
        return self._store(api_version, kind).body(key)

    def size(self, api_version: str, kind: str, namespace: str | None, name: str) -> int:
        """Return how many bytes one object has, without decoding it; 0 when no cache holds it."""
        return self._store(api_version, kind).size(_key(namespace, name))

    def list(self, api_version: str, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Return all cached objects of a kind; each is decoded when its turn comes.

        Raises:
            ObjectUnreadable: When the turn comes of one of which only the metadata could be read.
        """
        cached = map(readable, self._store(api_version, kind).each(namespace))
        return self._with_more(api_version, kind, cached, namespace)

    def by_index(self, api_version: str, kind: str, index: str, value: str) -> Iterable[JsonObject]:
        """Return the cached objects that an index of a plugin has under a value; each is decoded when its turn comes.

        Raises:
            NoSuchIndex: Nobody declared it.
            ObjectUnreadable: When the turn comes of one of which only the metadata could be read.
        """
        store = self._store(api_version, kind)
        if store is _NOTHING:
            return ()
        if plugin_index(index) not in store.index_names():
            raise NoSuchIndex(kind, index, plugin_indexes(store))
        return map(readable, store.by_index(plugin_index(index), value))

    def is_served(self, api_version: str, kind: str) -> bool:
        """Tell whether the server serves a kind that somebody declared."""
        return self._store(api_version, kind).is_served

    def workloads(self, job: TrainJob) -> Iterable[JsonObject]:
        """Return the workloads that a TrainJob controls, of its namespace; each is decoded when its turn comes.

        Raises:
            ObjectUnreadable: When the turn comes of one of which only the metadata could be read.
        """
        return self.controlled(job, self.workload_kinds)

    def controlled(self, job: TrainJob, kinds: Iterable[GroupVersionKind]) -> Iterator[JsonObject]:
        """Do that for kinds whose caches have the index `OWNER_INDEX`."""
        for api_version, kind in kinds:
            _, store = self._stores[api_version, kind]
            namespace = job.metadata.namespace
            cached = map(readable, store.by_index(OWNER_INDEX, owner_value(namespace, job.metadata.uid)))
            found = self._with_more(api_version, kind, cached, namespace)
            yield from (obj for obj in found if is_controlled_by(obj, job))

    def workload_size(self, job: TrainJob) -> int:
        """Return how many bytes the caches have of the workloads of a TrainJob, without decoding any."""
        stores = (self._stores[kind][1] for kind in self.workload_kinds)
        owner = owner_value(job.metadata.namespace, job.metadata.uid)
        return sum(store.size(key) for store in stores for key in store.index_keys(OWNER_INDEX, owner))

    def _store(self, api_version: str, kind: str) -> StoreReader:
        found = self._stores.get((api_version, kind))
        return _NOTHING if found is None else found[1]

    def _with_more(
        self, api_version: str, kind: str, cached: Iterable[JsonObject], namespace: str | None
    ) -> Iterable[JsonObject]:
        if not self._more:
            return cached
        more = {key: obj for (*gvk, key), obj in self._more.items() if gvk == [api_version, kind]}
        there = [copy_json(obj) for obj in more.values() if namespace in (None, obj["metadata"].get("namespace"))]
        return chain((obj for obj in cached if object_key(obj) not in more), there)

    def resource(self, api_version: str, kind: str) -> Resource | None:
        """Return the resource of a kind that is cached."""
        found = self._stores.get((api_version, kind))
        return None if found is None else found[0]

    def with_objects(self, objects: Iterable[JsonObject]) -> StoreListers:
        """Return the same listers with more objects, which no cache holds (any more, or yet)."""
        return StoreListers(self._stores, {**self._more, **_by_key(objects)}, workloads=self.workload_kinds)

    def sharing(self, objects: Iterable[JsonObject]) -> StoreListers:
        """Return the same listers for those who change nothing: of these objects `get` returns no copies."""
        return StoreListers(self._stores, self._more, shared=_by_key(objects), workloads=self.workload_kinds)


def _by_key(objects: Iterable[JsonObject]) -> dict[tuple[str, str, str], JsonObject]:
    return {(obj["apiVersion"], obj["kind"], object_key(obj)): obj for obj in objects}


def _key(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def readable(obj: JsonObject) -> JsonObject:
    """Return an object; raises `ObjectUnreadable` if only its metadata could be read."""
    if UNREADABLE in obj:
        raise ObjectUnreadable(obj)
    return obj
