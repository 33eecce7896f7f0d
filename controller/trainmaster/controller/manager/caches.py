"""The caches of the manager: one informer for each kind, and which of them wake up which TrainJobs.

Guarantees:
- E-3, E-4: a change wakes up the TrainJobs that the object belongs to after it, and those it belonged to before.
- E-6: a runtime finds the TrainJobs that wait for it by an index, and decodes none of them.
- B27: how a workload ended is remembered when it is deleted, from before the first TrainJob is looked at.
- E-7: an optional kind that the cluster does not serve holds nobody up; a needed one is named, with what to do.
- S-14: TrainJobs and runtimes are looked at again about every ten hours, after everything else.
- S-18, S-19: what is asked of the server, and kept, is no more than all plugins together asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from trainmaster.controller.kube.cache.informer import Informer, Transform
from trainmaster.controller.kube.cache.reflector import ListWatcher
from trainmaster.controller.kube.cache.store import Change, Store, split_key
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.kube.workqueue.queue import LOW_PRIORITY, WorkQueue
from trainmaster.controller.reconciling.trainjobs.deleted_workloads import Departures
from trainmaster.controller.reconciling.trainjobs.event_handlers import (
    RUNTIME_INDEX,
    config_map_keys,
    keys_of,
    runtime_index_value,
    runtime_index_values,
    trim_child,
    trim_to_owned,
)
from trainmaster.controller.reconciling.trainjobs.observe import CONFIG_MAP, KindKey
from trainmaster.controller.resources import RUNTIMES, TRAINJOBS, watched_resource
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND, snapshot_name
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

KeysOf = Callable[[Change], Iterable[str]]

_JOBSET = (JOBSET_API_VERSION, JOBSET_KIND)


class Caches:
    """All informers of the manager.

    Args:
        client: Where they read from.
        watches: What plugins declared, in addition to what the controller itself needs.
        clock: The time.
    """

    def __init__(self, client: ListWatcher, watches: Iterable[Watch], *, clock: Clock | None = None) -> None:
        declared = _by_kind(watches)
        self.trainjobs = Informer(client, TRAINJOBS, clock=clock)
        self.trainjobs.store.add_index(RUNTIME_INDEX, runtime_index_values)
        self.runtimes = {resource: Informer(client, resource, clock=clock) for resource in RUNTIMES.values()}
        self._config_maps = Informer(
            client, CONFIGMAPS, transform=_transform_for(declared.get(CONFIG_MAP, [])), clock=clock
        )
        own = {_kind_of(each.resource): each for each in (*self.runtimes.values(), self._config_maps)}
        shared = own | {_kind_of(TRAINJOBS): self.trainjobs}
        self._by_kind = own | {
            kind: shared[kind] if kind in shared else _informer_for(client, demands, clock=clock)
            for kind, demands in declared.items()
        }
        self._queue: WorkQueue | None = None
        self.departures = Departures(self.trainjobs.store)
        self.trainjobs.listen(self.departures.hear_of_trainjob)
        if _JOBSET in self._by_kind:
            self._by_kind[_JOBSET].listen(self.departures.hear_of_jobset)
        self._interests: list[tuple[Informer, KeysOf]] = [(self._config_maps, _states(config_map_keys))]
        self._interests += [
            (self._by_kind[kind], _states(keys_of(watch))) for kind, demands in declared.items() for watch in demands
        ]

    def stores(self) -> Mapping[KindKey, tuple[Resource, Store]]:
        """All caches by kind, each with its resource."""
        return {kind: (informer.resource, informer.store) for kind, informer in self._by_kind.items()}

    def connect(self, queue: WorkQueue) -> None:
        """Have every change wake up the TrainJobs that it concerns."""
        self._queue = queue
        _enqueue(self.trainjobs, _itself, queue, resync=True)
        for informer, keys in self._interests:
            _enqueue(informer, keys, queue)
        for informer in self.runtimes.values():
            _enqueue(informer, self._jobs_in_wait_of(informer.resource), queue)

    def wake_all(self) -> None:
        """Have all TrainJobs looked at again, after everything else: something that concerns them all has changed."""
        if self._queue is not None:
            for key in self.trainjobs.store.keys():  # noqa: SIM118 - a store is no mapping
                self._queue.add(key, priority=LOW_PRIORITY)

    def connect_runtimes(self, resource: Resource, queue: WorkQueue) -> None:
        """Have every change of a runtime put its own key into a queue."""
        _enqueue(self.runtimes[resource], _itself, queue, resync=True)

    def _jobs_in_wait_of(self, resource: Resource) -> KeysOf:
        """The TrainJobs of a runtime that have no snapshot yet; the others do not care about it any more."""

        def keys(change: Change) -> Iterable[str]:
            value = runtime_index_value(resource.kind, change.key)
            for key in self.trainjobs.store.keys_by_index(RUNTIME_INDEX, value):
                namespace, name = split_key(key)
                if f"{namespace}/{snapshot_name(name)}" not in self._config_maps.store:
                    yield key

        return keys

    async def run(self) -> None:
        """Keep all caches current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers():
                tasks.create_task(informer.run(), name=f"informer-{informer.resource.name}")

    async def wait_synced(self) -> None:
        """Wait until every cache is filled, but for optional kinds that the cluster does not serve."""
        for informer in self._informers():
            await informer.wait_ready()

    def missing(self) -> list[str]:
        """The resources whose caches are not filled and should be, each with the reason if there is one."""
        return [
            f"{informer.resource.name} ({informer.trouble})" if informer.trouble else informer.resource.name
            for informer in self._informers()
            if not informer.is_ready
        ]

    def _informers(self) -> list[Informer]:
        return list(dict.fromkeys([self.trainjobs, *self._by_kind.values()]))


def _by_kind(watches: Iterable[Watch]) -> dict[KindKey, list[Watch]]:
    declared: dict[KindKey, list[Watch]] = {}
    for watch in watches:
        declared.setdefault((watch.api_version, watch.kind), []).append(watch)
    return declared


def _kind_of(resource: Resource) -> KindKey:
    return resource.api_version, resource.kind


def _informer_for(client: ListWatcher, demands: list[Watch], *, clock: Clock | None) -> Informer:
    """Make the informer that serves everyone who declared a kind: the widest of what they ask for."""
    # Two different selectors have no union that the API could express, but for everything.
    selectors = {watch.label_selector for watch in demands}
    return Informer(
        client,
        watched_resource(demands[0]),
        label_selector=selectors.pop() if len(selectors) == 1 else None,
        metadata_only=all(watch.metadata_only for watch in demands),
        optional=all(watch.optional for watch in demands),
        transform=_transform_for(demands),
        clock=clock,
    )


def _transform_for(demands: list[Watch]) -> Transform:
    """Keep objects whole for whoever reads them; those who only build them need what TrainJobs own."""
    only_built = all(watch.writes and watch.jobs is None for watch in demands)
    return trim_to_owned if only_built else trim_child


def _itself(change: Change) -> Iterable[str]:
    return (change.key,)


def _states(keys_of: Callable[[JsonObject], Iterable[str]]) -> KeysOf:
    """Map a change by both of its states: an object may change its owner (E-4)."""

    def keys(change: Change) -> Iterable[str]:
        states = (change.new,) if change.resync else (change.old, change.new)
        return dict.fromkeys(key for state in states if state is not None for key in keys_of(state))

    return keys


def _enqueue(informer: Informer, keys_of: KeysOf, queue: WorkQueue, *, resync: bool = False) -> None:
    def hear(change: Change) -> None:
        priority = LOW_PRIORITY if change.initial or change.resync else 0
        for key in keys_of(change):
            queue.add(key, priority=priority)

    informer.listen(hear, resync=resync)
