"""The caches of the manager: one informer for each kind, and which of them wake up which TrainJobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from trainmaster.controller.kube.client import KubeClient
from trainmaster.controller.kube.informing import Informer, Tombstone, final_state
from trainmaster.controller.kube.queueing import LOW_PRIORITY, WorkQueue
from trainmaster.controller.kube.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIGMAPS,
    TRAINING_RUNTIMES,
    TRAINJOBS,
    Resource,
)
from trainmaster.controller.kube.storing import Store, object_key
from trainmaster.controller.reconciling.trainjobs.handlers import (
    RUNTIME_INDEX,
    config_map_keys,
    keys_of,
    runtime_index_value,
    runtime_index_values,
    trim_child,
    trim_config_map,
)
from trainmaster.controller.reconciling.trainjobs.observing import KindKey
from trainmaster.runtime.api.constants import snapshot_name
from trainmaster.runtime.facts import Watch
from trainmaster.runtime.jsontree import JsonObject

KeysOf = Callable[[JsonObject], Iterable[str]]

RUNTIMES = (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)


class Caches:
    """All informers of the manager.

    Args:
        client: Where they read from.
        watches: What plugins declared, in addition to what the controller itself needs.
    """

    def __init__(self, client: KubeClient, watches: Iterable[Watch]) -> None:
        self.trainjobs = Informer(client, TRAINJOBS)
        self.trainjobs.store.add_index(RUNTIME_INDEX, runtime_index_values)
        self.runtimes = {resource: Informer(client, resource) for resource in RUNTIMES}
        self._config_maps = Informer(client, CONFIGMAPS, transform=trim_config_map)
        self._declared: dict[KindKey, Informer] = {}
        self._interests: list[tuple[Informer, KeysOf]] = [(self._config_maps, config_map_keys)]
        known = self._by_kind()
        for watch in watches:
            key = (watch.api_version, watch.kind)
            if key not in known and key not in self._declared:
                self._declared[key] = Informer(client, _resource_of(watch), transform=trim_child)
            informer = self._declared.get(key) or known[key]
            self._interests.append((informer, keys_of(watch)))

    def stores(self) -> Mapping[KindKey, tuple[Resource, Store]]:
        """All caches by kind, each with its resource."""
        return {kind: (informer.resource, informer.store) for kind, informer in self._by_kind().items()}

    def connect(self, queue: WorkQueue) -> None:
        """Have every change wake up the TrainJobs that it concerns."""
        _enqueue(self.trainjobs, lambda obj: [object_key(obj)], queue)
        for informer, keys in self._interests:
            _enqueue(informer, keys, queue)
        for informer in self.runtimes.values():
            _enqueue(informer, self._jobs_in_wait_of, queue)

    def connect_runtimes(self, resource: Resource, queue: WorkQueue) -> None:
        """Have every change of a runtime put its own key into a queue."""
        _enqueue(self.runtimes[resource], lambda obj: [object_key(obj)], queue)

    def _jobs_in_wait_of(self, runtime: JsonObject) -> Iterable[str]:
        """The TrainJobs of a runtime that have no snapshot yet; the others do not care about it any more."""
        for job in self.trainjobs.store.by_index(RUNTIME_INDEX, runtime_index_value(runtime)):
            metadata = job["metadata"]
            if self._config_maps.store.get(f"{metadata['namespace']}/{snapshot_name(metadata['name'])}") is None:
                yield object_key(job)

    async def run(self) -> None:
        """Keep all caches current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers():
                tasks.create_task(informer.run(), name=f"informer-{informer.resource.name}")

    async def wait_synced(self) -> None:
        """Wait until every cache is filled."""
        for informer in self._informers():
            await informer.wait_synced()

    def missing(self) -> list[str]:
        """Names of the resources whose caches are not filled yet."""
        return [informer.resource.name for informer in self._informers() if not informer.has_synced]

    def _informers(self) -> list[Informer]:
        return [self.trainjobs, *self._by_kind().values()]

    def _by_kind(self) -> dict[KindKey, Informer]:
        own = [*self.runtimes.values(), self._config_maps]
        return {(informer.resource.api_version, informer.resource.kind): informer for informer in own} | self._declared


def _resource_of(watch: Watch) -> Resource:
    group, _, version = watch.api_version.rpartition("/")
    return Resource(group, version, watch.kind, watch.plural, watch.namespaced)


def _enqueue(informer: Informer, keys_of: KeysOf, queue: WorkQueue) -> None:
    def added(obj: JsonObject, initial: bool, /) -> None:
        for key in keys_of(obj):
            queue.add(key, priority=LOW_PRIORITY if initial else 0)

    def updated(old: JsonObject, new: JsonObject) -> None:
        # Both states count: an object may change its owner (E-4).
        for key in dict.fromkeys((*keys_of(old), *keys_of(new))):
            queue.add(key)

    def deleted(obj: JsonObject | Tombstone) -> None:
        for key in keys_of(final_state(obj)):
            queue.add(key)

    informer.add_handler(on_add=added, on_update=updated, on_delete=deleted)
