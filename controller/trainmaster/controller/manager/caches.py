"""The caches of the manager: one informer for each kind, and which TrainJobs their events enqueue.

Guarantees:
- E-3, E-4: a change enqueues the TrainJobs that the object belongs to after it, and those it belonged to before; also
  when the function of a plugin that says so fails (see `JobMapper`).
- E-6: a runtime finds the TrainJobs that wait for it by an index, and decodes none of them.
- B27: how a workload ended is remembered when it is deleted, from before the first TrainJob is reconciled.
- E-7: a kind that the cluster does not serve, or that only plugins read and the manager may not, holds nobody up but
  the TrainJobs that cannot do without (see `cache_sync`). When it is served, all TrainJobs are reconciled again.
- With named namespaces everything that has a namespace is read by namespace, as by controller-runtime's
  `DefaultNamespaces`; no TrainJob of a namespace is seen before everything else there.
- S-14: TrainJobs and runtimes are reconciled again about every ten hours (resync), after everything else.
- S-18, S-19: what is read from the server, and kept, is no more than what plugins declared (see `scopes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from trainmaster.controller.job_metrics.observer import TrainJobObserver
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions
from trainmaster.controller.kube.cache.listwatch import ListWatcher
from trainmaster.controller.kube.cache.outages import Outages
from trainmaster.controller.kube.cache.store import Store, StoreReader, split_key
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.kube.workqueue.queue import LOW_PRIORITY, WorkQueue
from trainmaster.controller.manager.cache_sync import CacheSync
from trainmaster.controller.manager.plugin_watches import JobMapper, ThreadedMapper
from trainmaster.controller.manager.scopes import JoinedStore, Scope, WrittenBesideStore, served_by
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.policyrule import READ, PolicyRule
from trainmaster.controller.reconciling.drift import strip_managed_fields
from trainmaster.controller.reconciling.event_handlers import (
    OWNER_INDEX,
    ConcernedKeys,
    DelayFunc,
    MapFunc,
    enqueue_on_change,
    enqueue_unless_echo,
    own_key,
    owner_values,
    priority_of_other,
    priority_of_own,
    priority_of_owned,
    strip_foreign_objects,
)
from trainmaster.controller.reconciling.expectations import EventFilter, Expectations, UnreadStore
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.trainjobs.event_handlers import (
    RUNTIME_INDEX,
    TRAINJOB_OWNER,
    config_map_keys,
    owner_keys,
    runtime_index_value,
    runtime_index_values,
    usual_owner,
)
from trainmaster.controller.reconciling.trainjobs.observe import CONFIG_MAP, DeletedWorkloads
from trainmaster.controller.reconciling.writes import GroupVersionKind
from trainmaster.controller.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    RUNTIMES,
    TRAINJOBS,
    plugin_index,
    watched_resource,
)
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND, snapshot_name
from trainmaster.runtime.framework.watches import refuse_contradictions
from trainmaster.runtime.listers import Watch

OWN_WATCHES = [
    Watch(
        each.api_version,
        each.kind,
        each.plural,
        each.namespaced,
        writes=each is CONFIGMAPS,
        declared_by="the controller itself",
    )
    for each in (TRAINJOBS, *RUNTIMES.values(), CONFIGMAPS)
]
"""What the controller needs, as a plugin would declare it. Of ConfigMaps it needs the snapshots of runtimes."""


def policy_rules(watches: Iterable[Watch], namespaces: Sequence[str] = ()) -> Iterator[PolicyRule]:
    """Return the rights that the caches of some watches need.

    A rule knows no labels, and nothing less than whole objects: whoever declares a selector, or that metadata is
    enough, gets the right to read all of the kind, and reads less. Namespaces it knows.

    Args:
        namespaces: The namespaces that are served; empty: all.
    """
    for watch in watches:
        if not watch.reads:
            continue
        parts = [f"label {watch.label_selector}" if watch.label_selector else "", "metadata" * watch.metadata_only]
        of_it = ", ".join(filter(None, parts))
        chosen = Scope.of(watch, namespaces).namespaces
        for namespace in ("",) if chosen is None else chosen:
            yield PolicyRule(
                resource=watched_resource(watch),
                verbs=READ,
                needed_by=watch.declared_by,
                reason=f"keep a cache of them ({of_it} only)" if of_it else "keep a cache of them",
                namespace=namespace,
                optional=watch.optional,
            )


class Caches:
    """All informers of the manager.

    Args:
        watches: What plugins declared, in addition to what the controller itself needs.
        namespaces: What is read of kinds that have namespaces; empty: all of it.
    """

    def __init__(
        self,
        client: ListWatcher,
        watches: Iterable[Watch],
        *,
        namespaces: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        watches = list(watches)
        refuse_contradictions([*OWN_WATCHES, *watches])
        own = {each.name for each in (TRAINJOBS, *RUNTIMES.values(), CONFIGMAPS)}
        self._sync = CacheSync(namespaces, own=own, on_served=self.enqueue_all)
        self.workloads = list(dict.fromkeys((each.api_version, each.kind) for each in watches if each.workload))
        """The kinds of workloads."""

        self.outages = Outages(self._retry_now, clock=clock)
        """Why the informers cannot read at present."""

        new = partial(
            Informer,
            client,
            outages=self.outages,
            on_state_change=self._sync.note,
            clock=clock,
        )
        self.trainjobs = new(TRAINJOBS, InformerOptions(namespaces=namespaces, start_after=self._wait_for_rest_of))
        self.trainjobs.store.add_indexer(RUNTIME_INDEX, runtime_index_values)
        # Who serves some namespaces may have no right to anything beyond them.
        optional = {CLUSTER_TRAINING_RUNTIMES} if namespaces else set()
        self.runtimes = {
            each: new(each, InformerOptions(namespaces=namespaces, optional=each in optional))
            for each in RUNTIMES.values()
        }
        whole = {_kind_of(each.resource): each for each in (self.trainjobs, *self.runtimes.values())}
        self.deleted_workloads = DeletedWorkloads(self.trainjobs.store)
        self.trainjobs.add_event_handler(self.deleted_workloads.on_trainjob_event)
        self._by_kind: dict[GroupVersionKind, list[tuple[Scope, Informer]]] = {}
        self._unread: dict[GroupVersionKind, tuple[Resource, Store]] = {}
        """Kinds that nobody reads, or not everybody who writes them, or only in namespaces that are not served."""

        self._workload_informers: list[Informer] = []
        self._watches: list[tuple[Informer, Watch]] = []
        for kind, every in _by_kind([*OWN_WATCHES, *watches]).items():
            declared = [watch for watch in every if watch.reads]
            if len(declared) < len(every):
                self._unread[kind] = watched_resource(every[0]), UnreadStore()
            scopes = self._by_kind.setdefault(kind, [])
            for scope, served in served_by(declared, namespaces).items():
                if scope.namespaces == ():
                    _, store = self._unread.setdefault(kind, (watched_resource(served[0]), Store()))
                    _add_indexes(store, served)
                    continue  # an informer would read all namespaces
                informer = whole.get(kind) or _informer_for(new, scope, served, namespaces, first=not scopes)
                self._sync.add(informer, [watch for watch in served if watch not in OWN_WATCHES])
                scopes.append((scope, informer))
                _add_indexes(informer.store, served)
                if any(watch.workload for watch in served):
                    # Of others, a selector or metadata, a deletion may be none, and its state less than there was.
                    informer.add_event_handler(self.deleted_workloads.on_workload_event)
                    self._workload_informers.append(informer)
                self._watches += [(informer, watch) for watch in served if watch not in OWN_WATCHES]
        self._declared = {(watch.api_version, watch.kind) for watch in watches}
        self._config_maps = self._by_kind[CONFIG_MAP][0][1]
        self._event_filter: EventFilter | None = None
        self._queues: list[WorkQueue] = []

    def stores(self) -> Mapping[GroupVersionKind, tuple[Resource, StoreReader]]:
        """All caches by kind, each with its resource."""
        read = {
            kind: (scopes[0][1].resource, _store_of(scopes, self._unread.get(kind)))
            for kind, scopes in self._by_kind.items()
            if scopes and (kind != _kind_of(TRAINJOBS) or kind in self._declared)
        }
        return {**self._unread, **read}

    def listers(self) -> StoreListers:
        """Listers over all caches."""
        return StoreListers(self.stores(), workloads=self.workloads)

    def add_trainjob_handlers(
        self,
        queue: WorkQueue,
        event_filter: EventFilter | None = None,
        *,
        delay_of: DelayFunc | None = None,
        plugin_threads: PluginThreads | None = None,
    ) -> None:
        """Have every change put the keys of the TrainJobs that it concerns into a queue.

        Args:
            queue: It.
            event_filter: It stands before that; by default something that knows of no echoes.
            delay_of: Asked of each change of a JobSet how many seconds the TrainJobs that it concerns may wait.
            plugin_threads: Where `Watch.jobs` is called; by default on the event loop.
        """
        self._event_filter = event_filter = EventFilter(queue, Expectations()) if event_filter is None else event_filter
        self._queues.append(queue)
        enqueue_unless_echo(self.trainjobs, own_key, event_filter, priority_of_own, resync=True)
        listers = self.listers()
        owned = dict.fromkeys(informer for informer, watch in self._watches if watch.jobs is None)
        for informer in {**owned, self._config_maps: None}:
            keys_of = config_map_keys if informer is self._config_maps else owner_keys
            anew = informer not in self._workload_informers
            concerned = ConcernedKeys(keys_of, usual=usual_owner)
            delays = delay_of if _kind_of(informer.resource) == (JOBSET_API_VERSION, JOBSET_KIND) else None
            enqueue_unless_echo(informer, concerned, event_filter, priority_of_owned, anew=anew, delay_of=delays)
        for informer, watch in self._watches:
            if watch.jobs is None:
                continue
            mapper = JobMapper(watch, listers)
            if plugin_threads is None:
                enqueue_unless_echo(informer, mapper, event_filter, priority_of_other, owned=False)
            else:
                informer.add_event_handler(
                    ThreadedMapper(mapper, plugin_threads, partial(_reconcile_mapped, event_filter))
                )
        for informer in self.runtimes.values():
            waiting = self._trainjobs_waiting_for(informer.resource)
            enqueue_unless_echo(informer, waiting, event_filter, priority_of_other, owned=False)

    def add_observer(self, observer: TrainJobObserver) -> None:
        """Have whoever follows TrainJobs told of each change of one, or of the JobSet of one."""
        self.trainjobs.add_event_handler(observer.on_trainjob_event)
        for informer in self._workload_informers:
            if _kind_of(informer.resource) == (JOBSET_API_VERSION, JOBSET_KIND):
                informer.add_event_handler(observer.on_workload_event)

    def add_pod_handler(self, handler: Callable[[Delta], object]) -> None:
        """Have each change of the pods that plugins watch told."""
        for _, informer in self._by_kind.get(("v1", "Pod"), ()):
            informer.add_event_handler(handler)

    def enqueue_all(self) -> None:
        """Have all TrainJobs reconciled again, after everything else: something that concerns them all has changed."""
        if self._event_filter is not None:
            for key in self.trainjobs.store.keys():  # noqa: SIM118 - a store is no mapping
                self._event_filter.add(key, None, anew=True, priority=LOW_PRIORITY)

    def add_runtime_handlers(self, resource: Resource, queue: WorkQueue) -> None:
        """Have every change of a runtime put its own key into a queue."""
        self._queues.append(queue)
        enqueue_on_change(self.runtimes[resource], own_key, queue, priority_of_own, resync=True)

    def _retry_now(self) -> None:
        for queue in self._queues:
            queue.retry_now()

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
            for informer in self.informers():
                tasks.create_task(informer.run(), name=f"informer-{informer.name}")

    async def wait_for_sync(self) -> None:
        """Wait until the caches are filled so far that controllers may begin (see `cache_sync`)."""
        await self._sync.wait()

    def do_without_own(self) -> None:
        """Wait no longer for kinds of Trainer that the cluster does not serve: there are others to do."""
        self._sync.do_without_own()

    def not_synced(self) -> list[str]:
        """The resources whose caches have not synced and should have, each with the reason if there is one."""
        return self._sync.missing()

    def waited_for(self) -> list[str]:
        """The kinds that only some TrainJobs wait for, each with the plugins that need it and what to do."""
        return self._sync.waited_for()

    async def _wait_for_rest_of(self, namespace: str) -> None:
        await self._sync.wait_for_rest_of(namespace, self.trainjobs)

    def synced(self) -> int:
        """Count the caches that have synced."""
        return sum(informer.has_synced for informer in self.informers())

    def informers(self) -> list[Informer]:
        """Return all informers."""
        return [informer for scopes in self._by_kind.values() for _, informer in scopes]


def _add_indexes(store: Store, watches: Iterable[Watch]) -> None:
    """Add to a store the indexes that those need whom it serves; functions of others may expect more of an object."""
    for watch in watches:
        for name, function in watch.indexes.items():
            store.add_indexer(plugin_index(name), function)
        if watch.workload or watch.prunes:
            store.add_indexer(OWNER_INDEX, owner_values)


def _by_kind(watches: Iterable[Watch]) -> dict[GroupVersionKind, list[Watch]]:
    declared: dict[GroupVersionKind, list[Watch]] = {}
    for watch in watches:
        declared.setdefault((watch.api_version, watch.kind), []).append(watch)
    return declared


def _kind_of(resource: Resource) -> GroupVersionKind:
    return resource.api_version, resource.kind


def _informer_for(
    new: Callable[..., Informer], scope: Scope, watches: list[Watch], namespaces: Sequence[str], *, first: bool
) -> Informer:
    """Make the informer of one scope, for the plugins that it serves; `first` is the widest of its kind."""
    resource = watched_resource(watches[0])
    options = InformerOptions(
        namespaces=namespaces if scope.namespaces is None else scope.namespaces,
        label_selector=scope.label_selector,
        metadata_only=scope.metadata_only,
        optional=all(watch.optional for watch in watches),
        absent_if_denied=not any(watch.required or watch in OWN_WATCHES for watch in watches),
        transform=strip_foreign_objects(TRAINJOB_OWNER) if scope.owned_only else strip_managed_fields,
        name=None if first else f"{resource.name}[{scope}]",
    )
    return new(resource, options)


def _store_of(scopes: list[tuple[Scope, Informer]], unread: tuple[Resource, Store] | None) -> StoreReader:
    """Return where a kind is read from, which is the store of its informer unless there are several."""
    parts = [(scope, informer.store) for scope, informer in scopes]
    if unread is not None and isinstance(unread[1], UnreadStore) and not any(each.hears_of_all for each, _ in parts):
        return WrittenBesideStore(parts, unread[1])
    return parts[0][1] if len(parts) == 1 else JoinedStore(parts)


def _reconcile_mapped(event_filter: EventFilter, change: Delta, keys: Iterable[str]) -> None:
    for key in keys:
        event_filter.add(key, None, anew=True, priority=priority_of_other(change))
