"""The caches of the manager: one informer for each kind, and which TrainJobs their events enqueue.

Guarantees:
- E-3, E-4: a change enqueues the TrainJobs that the object belongs to after it, and those it belonged to before.
- E-6: a runtime finds the TrainJobs that wait for it by an index, and decodes none of them.
- B27: how a workload ended is remembered when it is deleted, from before the first TrainJob is reconciled.
- E-7: an optional kind that the cluster does not serve holds nobody up; a needed one is named, with what to do.
- S-14: TrainJobs and runtimes are reconciled again about every ten hours (resync), after everything else.
- S-18, S-19: what is read from the server, and kept, is no more than all plugins together declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, Transform
from trainmaster.controller.kube.cache.listwatch import ListWatcher
from trainmaster.controller.kube.cache.store import Store, split_key
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.kube.workqueue.queue import LOW_PRIORITY, WorkQueue
from trainmaster.controller.reconciling.trainjobs.deleted_workloads import DeletedWorkloads
from trainmaster.controller.reconciling.trainjobs.event_handlers import (
    RUNTIME_INDEX,
    config_map_keys,
    map_func,
    runtime_index_value,
    runtime_index_values,
    strip_foreign_objects,
    strip_managed_fields,
)
from trainmaster.controller.reconciling.trainjobs.observe import CONFIG_MAP, GroupVersionKind
from trainmaster.controller.resources import RUNTIMES, TRAINJOBS, watched_resource
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND, snapshot_name
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

MapFunc = Callable[[Delta], Iterable[str]]
"""Maps a change of one object to the keys of the objects to reconcile."""

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
        self.trainjobs.store.add_indexer(RUNTIME_INDEX, runtime_index_values)
        self.runtimes = {resource: Informer(client, resource, clock=clock) for resource in RUNTIMES.values()}
        self._config_maps = Informer(
            client, CONFIGMAPS, transform=_transform_for(declared.get(CONFIG_MAP, [])), clock=clock
        )
        own = {_kind_of(each.resource): each for each in (*self.runtimes.values(), self._config_maps)}
        shared = own | {_kind_of(TRAINJOBS): self.trainjobs}
        self._by_kind = own | {
            kind: shared[kind] if kind in shared else _informer_for(client, declaring, clock=clock)
            for kind, declaring in declared.items()
        }
        self._queue: WorkQueue | None = None
        self.deleted_workloads = DeletedWorkloads(self.trainjobs.store)
        self.trainjobs.add_event_handler(self.deleted_workloads.on_trainjob_event)
        if _JOBSET in self._by_kind:
            self._by_kind[_JOBSET].add_event_handler(self.deleted_workloads.on_jobset_event)
        self._watches: list[tuple[Informer, MapFunc]] = [(self._config_maps, _of_both_states(config_map_keys))]
        self._watches += [
            (self._by_kind[kind], _of_both_states(map_func(watch)))
            for kind, declaring in declared.items()
            for watch in declaring
        ]

    def stores(self) -> Mapping[GroupVersionKind, tuple[Resource, Store]]:
        """All caches by kind, each with its resource."""
        return {kind: (informer.resource, informer.store) for kind, informer in self._by_kind.items()}

    def add_trainjob_handlers(self, queue: WorkQueue) -> None:
        """Have every change put the keys of the TrainJobs that it concerns into a queue."""
        self._queue = queue
        _enqueue_on_change(self.trainjobs, _own_key, queue, resync=True)
        for informer, keys_of in self._watches:
            _enqueue_on_change(informer, keys_of, queue)
        for informer in self.runtimes.values():
            _enqueue_on_change(informer, self._trainjobs_waiting_for(informer.resource), queue)

    def enqueue_all(self) -> None:
        """Have all TrainJobs reconciled again, after everything else: something that concerns them all has changed."""
        if self._queue is not None:
            for key in self.trainjobs.store.keys():  # noqa: SIM118 - a store is no mapping
                self._queue.add(key, priority=LOW_PRIORITY)

    def add_runtime_handlers(self, resource: Resource, queue: WorkQueue) -> None:
        """Have every change of a runtime put its own key into a queue."""
        _enqueue_on_change(self.runtimes[resource], _own_key, queue, resync=True)

    def _trainjobs_waiting_for(self, resource: Resource) -> MapFunc:
        """The TrainJobs of a runtime that have no snapshot yet; the others do not care about it any more."""

        def keys(change: Delta) -> Iterable[str]:
            value = runtime_index_value(resource.kind, change.key)
            for key in self.trainjobs.store.index_keys(RUNTIME_INDEX, value):
                namespace, name = split_key(key)
                if f"{namespace}/{snapshot_name(name)}" not in self._config_maps.store:
                    yield key

        return keys

    async def run(self) -> None:
        """Keep all caches current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers():
                tasks.create_task(informer.run(), name=f"informer-{informer.resource.name}")

    async def wait_for_sync(self) -> None:
        """Wait until every cache has synced, but for optional kinds that the cluster does not serve."""
        for informer in self._informers():
            await informer.wait_ready()

    def not_synced(self) -> list[str]:
        """The resources whose caches have not synced and should have, each with the reason if there is one."""
        return [
            f"{informer.resource.name} ({informer.failure})" if informer.failure else informer.resource.name
            for informer in self._informers()
            if not informer.is_ready
        ]

    def _informers(self) -> list[Informer]:
        return list(dict.fromkeys([self.trainjobs, *self._by_kind.values()]))


def _by_kind(watches: Iterable[Watch]) -> dict[GroupVersionKind, list[Watch]]:
    declared: dict[GroupVersionKind, list[Watch]] = {}
    for watch in watches:
        declared.setdefault((watch.api_version, watch.kind), []).append(watch)
    return declared


def _kind_of(resource: Resource) -> GroupVersionKind:
    return resource.api_version, resource.kind


def _informer_for(client: ListWatcher, watches: list[Watch], *, clock: Clock | None) -> Informer:
    """Make the informer that serves all plugins that watch a kind: the widest of what they declared."""
    # Two different selectors have no union that the API could express, but for everything.
    selectors = {watch.label_selector for watch in watches}
    return Informer(
        client,
        watched_resource(watches[0]),
        label_selector=selectors.pop() if len(selectors) == 1 else None,
        metadata_only=all(watch.metadata_only for watch in watches),
        optional=all(watch.optional for watch in watches),
        transform=_transform_for(watches),
        clock=clock,
    )


def _transform_for(watches: list[Watch]) -> Transform:
    """Keep objects whole for whoever reads them; those who only build them need what TrainJobs own."""
    only_built = all(watch.writes and watch.jobs is None for watch in watches)
    return strip_foreign_objects if only_built else strip_managed_fields


def _own_key(change: Delta) -> Iterable[str]:
    return (change.key,)


def _of_both_states(keys_of: Callable[[JsonObject], Iterable[str]]) -> MapFunc:
    """Map a change by both of its states: an object may change its owner (E-4)."""

    def keys(change: Delta) -> Iterable[str]:
        states = (change.new,) if change.resync else (change.old, change.new)
        return dict.fromkeys(key for state in states if state is not None for key in keys_of(state))

    return keys


def _enqueue_on_change(informer: Informer, keys_of: MapFunc, queue: WorkQueue, *, resync: bool = False) -> None:
    def enqueue(change: Delta) -> None:
        priority = LOW_PRIORITY if change.initial or change.resync else 0
        for key in keys_of(change):
            queue.add(key, priority=priority)

    informer.add_event_handler(enqueue, resync=resync)
