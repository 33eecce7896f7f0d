"""The jobs of `kubeflow.org/v1`: their caches and controllers, which cost nothing where no such kind is served.

Guarantees:
- While the server serves none of the kinds, nothing of theirs is read: discovery is asked every `DISCOVERY_INTERVAL`,
  for which no right is needed.
- While another operator is in charge (see `other_operator`), nothing of theirs is read either.
- A kind whose jobs, or what they own, may not be read is not served; all others are, and the manager is ready.
- No job is seen before the pods, and all else that jobs own, of its namespace are there. Other kinds do not wait.
- A cluster may have these kinds and none of Trainer's: `on_served` is called when the first of them is served.
- A kind that jobs own may be installed later (V1-B26): its absence is told by the jobs that need it, and all jobs are
  reconciled again when it is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import orjson
import structlog

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.job_metrics.jobs_by_state import JobStates
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions, Transform, strip_managed_fields
from trainmaster.controller.kube.cache.outages import Outages
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import ControllerRecorder, EventRecorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import PODS, SERVICES, Resource
from trainmaster.controller.kube.workqueue.queue import LOW_PRIORITY, WorkQueue
from trainmaster.controller.manager import other_operator, rights
from trainmaster.controller.manager.other_operator import OtherOperator
from trainmaster.controller.operator_namespace import operator_namespace
from trainmaster.controller.policyrule import READ, PolicyRule
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.reconciling.event_handlers import (
    OWNER_INDEX,
    ConcernedKeys,
    enqueue_on_change,
    own_key,
    owner_values,
    priority_of_own,
    priority_of_owned,
    strip_foreign_objects,
)
from trainmaster.controller.reconciling.expectations import UnreadStore
from trainmaster.controller.reconciling.jobs.decider import JobDecider
from trainmaster.controller.reconciling.jobs.observe import JobStores, OwnedKind, job_keys, trim_pod, trim_service
from trainmaster.controller.reconciling.jobs.status import only_counters
from trainmaster.controller.reconciling.reconciler import Reconciler
from trainmaster.controller.reconciling.writes import GroupVersionKind
from trainmaster.controller.resources import job_resource, watched_resource
from trainmaster.metrics.queue import WorkQueueMetrics
from trainmaster.runtime.api.constants import POD_GROUP_KIND
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.podgroup import GangScheduler, SchedulerPlugins, Volcano, gang_scheduler
from trainmaster.runtime.listers import Watch

if TYPE_CHECKING:
    from trainmaster.controller.tracing.tracing import Tracing

log = structlog.get_logger(__name__)

DISCOVERY_INTERVAL: Final = 30.0
"""Seconds between two questions whether a kind is served that was not; no connection is kept for as long."""

_PRIORITY_CLASSES: Final = Watch(
    "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False, optional=True
)


def gang_of(configuration: Configuration) -> GangScheduler | None:
    """Return the gang scheduler that a configuration names."""
    return gang_scheduler(configuration.training_operator.gang_scheduler_name)


def policy_rules(configuration: Configuration, kinds: Iterable[JobKind]) -> Iterator[PolicyRule]:
    """Return the rights that the jobs of some kinds need.

    Without a gang scheduler those for either are among them, so that a flag is enough to choose one.
    """
    kinds = list(kinds)
    if not kinds:
        return
    has_services = any(kind.has_services for kind in kinds)
    for each in (PODS, SERVICES) if has_services else (PODS,):
        yield _read(each, rights.JOBS)
    yield from rights.pod_rules(has_services=has_services)
    if not configuration.watch_namespaces:
        yield from other_operator.POLICY_RULES
    chosen = gang_of(configuration)
    for gang in (Volcano(), SchedulerPlugins("")) if chosen is None else (chosen,):
        for watch in _gang_watches(gang):
            yield _read(watched_resource(watch), rights.JOBS, optional=True)
            yield rights.owned_rule(watch, needed_by=rights.JOBS, optional=True)
    yield _read(watched_resource(_PRIORITY_CLASSES), rights.JOBS, optional=True)
    for kind in kinds:
        resource = job_resource(kind)
        yield _read(resource, kind.controller_name)
        for watch in kind.watches():
            if watch.reads:
                yield _read(watched_resource(watch), kind.controller_name)
        yield from rights.job_rules(kind, resource)


def _read(resource: Resource, needed_by: str, *, optional: bool = False) -> PolicyRule:
    return PolicyRule(
        resource=resource, verbs=READ, needed_by=needed_by, reason="keep a cache of them", optional=optional
    )


def _gang_watches(gang: GangScheduler | None) -> list[Watch]:
    return [] if gang is None else [Watch(gang.api_version, POD_GROUP_KIND, "podgroups", writes=True, optional=True)]


@dataclass(slots=True)
class _Served:
    """One kind of jobs."""

    kind: JobKind
    resource: Resource
    informer: Informer
    controller: Controller
    states: JobStates
    children: list[Informer] = field(default_factory=list)
    """What has to be there before its jobs are read."""


class TrainingOperator:
    """All caches and controllers of jobs.

    Args:
        client: Where they are read from, and what performs the writes.
        on_served: Called when there are jobs to serve.
    """

    def __init__(
        self,
        client: KubeClient,
        kinds: Sequence[JobKind],
        *,
        recorder: EventRecorder,
        configuration: Configuration,
        clock: Clock,
        tracing: Tracing | None = None,
        planner: Executor | None = None,
        on_served: Callable[[], object] = lambda: None,
    ) -> None:
        self._client = client
        self._on_served = on_served
        self._planner = planner
        self._tracing = tracing
        self._clock = clock
        self._gang = gang_of(configuration)
        # Who serves some namespaces has no right to look at anything beyond them.
        service = configuration.cert_management.webhook_service_name, operator_namespace()
        self._other = None if configuration.watch_namespaces else OtherOperator(client, service=service)
        self._namespaces = configuration.watch_namespaces
        self._changed = asyncio.Event()
        self._started: list[Informer] = []
        self._absent: set[Informer] = set()
        self._informer = partial(
            Informer,
            client,
            outages=Outages(self._retry_now, clock=clock),
            on_state_change=self._note,
            clock=clock,
        )
        self._children: dict[tuple[object, ...], Informer] = {}
        self._concurrency = configuration.controller.group_kind_concurrency
        self._recorder = recorder
        self._kinds = [
            self._make(kind, strip_foreign_objects(*((each.group, each.kind) for each in kinds))) for kind in kinds
        ]

    @property
    def controllers(self) -> list[Controller]:
        """The controllers, one for each kind, which wait for keys."""
        return [each.controller for each in self._kinds]

    def informers(self) -> list[Informer]:
        """The informers that run."""
        return list(self._started)

    def job_informers(self) -> list[tuple[str, Informer]]:
        """The informers of all kinds of jobs, by kind; those of kinds that are served run."""
        return [(each.kind.kind, each.informer) for each in self._kinds]

    def not_synced(self) -> list[str]:
        """The resources whose caches have not synced and should have, each with the reason if there is one.

        What the server refuses is not among them, nor what waits for that: all else is served without. The log tells.
        """
        refused = {each for each in self._started if _is_refused(each)}
        refused |= {each.informer for each in self._kinds if not refused.isdisjoint(each.children)}
        waiting = (each for each in self._started if each not in refused and not each.is_ready)
        return [each.name + (f" ({each.failure})" if each.failure else "") for each in waiting]

    def close(self) -> None:
        """Show nothing of the jobs any more: the manager ends."""
        for each in self._kinds:
            each.states.close()

    async def run(self) -> None:
        """Keep the caches of all kinds current that the server serves, until cancelled."""
        rest = list(self._kinds)
        async with asyncio.TaskGroup() as tasks:
            while rest:
                names = await self._served_names({each.resource.api_version for each in rest})
                served = [each for each in rest if (each.resource.api_version, each.resource.plural) in names]
                if served and self._other is not None and await self._other.is_in_charge() is not False:
                    served = []  # also while it is not known: two operators would undo each other's writes
                for each in served:
                    rest.remove(each)
                    for child in each.children:
                        if child not in self._started:
                            self._started.append(child)
                            tasks.create_task(child.run(), name=f"informer-{child.name}")
                    self._started.append(each.informer)
                    tasks.create_task(self._read_jobs(each), name=f"informer-{each.informer.name}")
                if served:
                    self._on_served()
                    log.info("jobs are served", kinds=[each.kind.kind for each in served])
                if rest:
                    await self._clock.sleep(DISCOVERY_INTERVAL)

    def _make(self, kind: JobKind, transform: Transform) -> _Served:
        resource = job_resource(kind)
        pods = self._child(PODS, trim_pod, label_selector=JOB_NAME_LABEL)
        children = [pods]
        services = pods
        if kind.has_services:
            services = self._child(SERVICES, trim_service, label_selector=JOB_NAME_LABEL)
            children.append(services)
        others: dict[GroupVersionKind, OwnedKind] = {}
        for watch in (*_gang_watches(self._gang), *kind.watches()):
            owned = watched_resource(watch)
            if not watch.reads:
                store = UnreadStore()
                store.add_indexer(OWNER_INDEX, owner_values)
                others[watch.api_version, watch.kind] = OwnedKind(owned, store, watch.creates_only)
                continue
            informer = self._child(
                owned,
                transform,
                label_selector=watch.label_selector,
                metadata_only=watch.metadata_only,
                optional=watch.optional,
            )
            children.append(informer)
            others[watch.api_version, watch.kind] = OwnedKind(owned, informer.store, watch.creates_only)
        priorities = None
        if self._gang is not None:
            classes = self._child(watched_resource(_PRIORITY_CLASSES), strip_managed_fields, optional=True)
            children.append(classes)
            priorities = classes.store

        options = InformerOptions(
            namespaces=self._namespaces, optional=True, start_after=partial(self._wait_for, children)
        )
        informer = self._informer(resource, options)
        metrics, exists = WorkQueueMetrics(kind.controller_name), informer.store.__contains__
        queue = WorkQueue(clock=self._clock, metrics=metrics, exists=exists)
        enqueue_on_change(informer, own_key, queue, priority_of_own, resync=True)
        states = JobStates(kind.framework)
        informer.add_event_handler(states.on_event)
        for child in children:
            concerned = ConcernedKeys(job_keys(kind), usual=_usual_owner)
            enqueue_on_change(child, concerned, queue, priority_of_owned)
        stores = JobStores(informer.store, pods.store, services.store, others, priorities)
        recorder = ControllerRecorder(self._recorder, kind.controller_name)
        decider = JobDecider(
            kind=kind, stores=stores, gang=self._gang, recorder=recorder, clock=self._clock, planner=self._planner
        )
        reconciler = Reconciler(
            decider,
            client=self._client,
            resource=resource,
            jobs=informer.store,
            stores=stores.written(),
            queue=queue,
            recorder=recorder,
            clock=self._clock,
            only_counters=only_counters,
        )

        def on_start() -> None:
            reconciler.on_start()
            decider.on_start()
            states.lead()

        name, tracing = kind.controller_name, self._tracing
        controller = Controller(
            name,
            reconciler.reconcile,
            queue,
            workers=self._concurrency.get(f"{kind.kind}.{kind.group}", lambda: self._client.concurrency_limit.limit),
            on_start=on_start,
            unobserved=reconciler.unobserved,
            clock=self._clock,
            tracer=None if tracing is None else tracing.reconciles(name, kind.kind, informer.store.uid),
        )
        return _Served(kind, resource, informer, controller, states, children)

    def _child(self, resource: Resource, transform: Transform, **options: Any) -> Informer:
        """Return the informer of a kind that jobs own; kinds of jobs share it that want the same of it."""
        wanted = resource.api_version, resource.kind, *sorted(options.items())
        if wanted not in self._children:
            selector = options.get("label_selector") if resource not in (PODS, SERVICES) else None
            name = f"{resource.name}[jobs{f',{selector}' if selector else ''}]"
            informer = self._informer(
                resource, InformerOptions(namespaces=self._namespaces, transform=transform, name=name, **options)
            )
            informer.store.add_indexer(OWNER_INDEX, owner_values)
            self._children[wanted] = informer
        return self._children[wanted]

    async def _read_jobs(self, served: _Served) -> None:
        if None in served.informer.reflectors:
            await self._wait_for(served.children, None)
        await served.informer.run()

    async def _wait_for(self, children: Iterable[Informer], namespace: str | None) -> None:
        """Wait until everything that jobs of a namespace own is there."""
        while not all(_is_ready(each, namespace) for each in children):
            await self._changed.wait()

    def _note(self, informer: Informer) -> None:
        """Take note that an informer fares otherwise than before."""
        self._changed.set()
        self._changed = asyncio.Event()
        if any(each.failure is not None and each.failure.is_not_served for each in informer.reflectors.values()):
            self._absent.add(informer)
        elif informer in self._absent:
            self._absent.discard(informer)
            for each in self._kinds:
                if informer in each.children:
                    for key in each.informer.store.keys():  # noqa: SIM118 - a store is no mapping
                        each.controller.queue.add(key, priority=LOW_PRIORITY)

    def _retry_now(self) -> None:
        for each in self._kinds:
            each.controller.queue.retry_now()

    async def _served_names(self, api_versions: set[str]) -> set[tuple[str, str]]:
        """Ask the server which resources it serves in some API versions; what cannot be asked serves nothing yet."""
        names: set[tuple[str, str]] = set()
        for api_version in sorted(api_versions):
            try:
                status, _, body = await self._client.raw("GET", f"/apis/{api_version}")
                found = orjson.loads(body) if status == HTTPStatus.OK else {}
            except (KubeError, orjson.JSONDecodeError) as error:
                log.debug("what the server serves cannot be asked", error=str(error))
                continue
            names |= {(api_version, str(each.get("name"))) for each in found.get("resources") or []}
        return names


def _is_refused(informer: Informer) -> bool:
    return any(each.failure is not None and each.failure.is_refused for each in informer.reflectors.values())


def _is_ready(informer: Informer, namespace: str | None) -> bool:
    reflector = informer.reflectors.get(namespace) or informer.reflectors.get(None)
    return reflector is None or reflector.is_ready


def _usual_owner(key: str) -> str:
    """The key of the job to which an object belongs most often: `job` is the owner of `job-worker-0`."""
    return key.rsplit("-", 2)[0]
