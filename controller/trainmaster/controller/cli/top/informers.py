"""What a cluster tells of its jobs, nodes and managers, by informers: nothing is polled that can be watched.

- A job is looked at anew when it, its workload or a pod of it has changed: of thousands of jobs that rest, a change of
  one costs the work for one.
- What may not be read, or is not served, is told once and done without.
- While the cluster is away, what was known stays, and the reason is told.
- The manager of an embedded cluster, which has no pod, is asked about every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Final, Self

from trainmaster.controller.cli.cluster import manager_status
from trainmaster.controller.cli.follow.job_informers import Reachability
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.rows import jobs_of, owner_key
from trainmaster.controller.cli.probes import MANAGER_LABELS, NODES
from trainmaster.controller.cli.top.job_table import JobTable
from trainmaster.controller.cli.top.managers import Managers, managers_of
from trainmaster.controller.cli.top.node_usage import NodeUsage, node_usages, trimmed_pod
from trainmaster.controller.cli.top.snapshot import Snapshot
from trainmaster.controller.explain.causes.controllers import LEASE
from trainmaster.controller.explain.pods import is_own
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions, Transform, strip_managed_fields
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import LEASES, PODS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.api.constants import JOBSET_LABEL
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jsontree import JsonObject

_OWNER: Final = "owner"
_BOUND: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_READ_WITHIN: Final = 10.0
_ASK_EVERY: Final = 5.0


class ClusterInformers:
    """Reads a cluster; an asynchronous context manager."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str | None,
        kinds: Sequence[Resource],
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._on_change = on_change
        self._outage = ""
        self._unread: dict[str, str] = {}
        self._reachability = Reachability(on_outage=self._note_outage, on_refusal=self._note_refusal)
        self._tasks: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()

        self._jobs = {kind: self._informer(kind, namespace) for kind in kinds}
        self._jobsets = self._informer(JOBSETS, namespace)
        # Of all kinds of kubeflow.org/v1 the pods have the same labels.
        labels = {JOBSET_LABEL if kind == TRAINJOBS else JOB_NAME_LABEL: kind for kind in kinds}
        self._pods = {
            label: self._informer(PODS, namespace, labels=label, name=name)
            for label, name in (
                (JOBSET_LABEL, "pods of TrainJobs"),
                (JOB_NAME_LABEL, "pods of jobs of kubeflow.org/v1"),
            )
            if label in labels
        }
        self._kinds = {kind.kind.lower(): kind for kind in kinds}
        self._table = JobTable(
            {kind: informer.store for kind, informer in self._jobs.items()}, self._jobsets.store, self._pods_of
        )
        for kind, informer in self._jobs.items():
            informer.add_event_handler(partial(self._job_changed, kind))
        self._jobsets.add_event_handler(self._jobset_changed)
        for informer in self._pods.values():
            informer.store.add_indexer(_OWNER, jobs_of)
            informer.add_event_handler(self._pod_changed)

        self._nodes = self._informer(NODES, None)
        self._bound = self._informer(PODS, None, fields=_BOUND, name="pods on nodes", transform=trimmed_pod)
        self._bound.add_event_handler(lambda _: self._on_change())
        self._nodes.add_event_handler(lambda _: self._on_change())

        self._manager_pods = self._informer(PODS, None, labels=MANAGER_LABELS, name="pods of managers")
        self._leases = self._informer(LEASES, None, fields=f"metadata.name={LEASE}")
        self._manager_pods.add_event_handler(lambda _: self._on_change())
        self._embedded: JsonObject | None = None
        """What an embedded cluster tells of the manager that it runs itself; None of other clusters."""

        self._embedded_read = asyncio.Event()

    async def __aenter__(self) -> Self:
        group = await self._group.__aenter__()
        self._tasks = [group.create_task(each.run()) for each in self._all]
        self._tasks.append(group.create_task(self._read_embedded()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(kind, error, trace)

    async def complete_snapshot(self) -> Snapshot:
        """Return what is known when all was read that can be; what takes longer than some seconds is told."""
        await self._wait_read()
        while True:
            snapshot = self.snapshot()
            if self._table.is_up_to_date:
                return snapshot
            await asyncio.sleep(0)

    async def _wait_read(self) -> None:
        waits = [
            asyncio.create_task(each) for each in (*(i.wait_ready() for i in self._all), self._embedded_read.wait())
        ]
        _, late = await asyncio.wait(waits, timeout=_READ_WITHIN)
        for each in late:
            each.cancel()
        for informer in self._all:
            if not informer.is_ready:
                self._unread.setdefault(informer.name, f"no answer within {_READ_WITHIN:g} s")

    def snapshot(self) -> Snapshot:
        """Return what is known now."""
        now = datetime.now(UTC)
        self._table.bring_up_to_date(now)
        if not self._table.is_up_to_date:
            self._on_change()
        return Snapshot(
            now=now,
            server=self._client.config.server,
            namespace=self._namespace,
            jobs=self._table.rows,
            nodes=self._usages(),
            managers=self._managers(now),
            unread=list(self._unread_lines()),
            outage=self._outage,
            is_complete=self._table.is_up_to_date and all(informer.is_ready for informer in self._all),
        )

    @property
    def _all(self) -> Sequence[Informer]:
        return (
            *self._jobs.values(),
            self._jobsets,
            *self._pods.values(),
            self._nodes,
            self._bound,
            self._manager_pods,
            self._leases,
        )

    def _informer(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        name: str | None = None,
        transform: Transform = strip_managed_fields,
    ) -> Informer:
        options = InformerOptions(
            namespaces=() if namespace is None else (namespace,),
            label_selector=labels,
            field_selector=fields,
            optional=True,
            name=name,
            transform=transform,
        )
        return Informer(
            self._client,
            resource,
            options,
            outages=self._reachability.outages,
            on_state_change=self._state_changed,
        )

    # What informers tell of themselves

    def _state_changed(self, informer: Informer) -> None:
        self._reachability.changed(informer)
        if informer.failure is None:
            self._unread.pop(informer.name, None)
        self._on_change()

    def _note_outage(self, reason: str | None) -> None:
        self._outage = reason or ""
        self._on_change()

    def _unread_lines(self) -> Iterator[str]:
        """Yield why something cannot be read, each reason once."""
        for reason in dict.fromkeys(self._unread.values()):
            names = sorted(name for name, why in self._unread.items() if why == reason)
            yield f"{', '.join(names)}: {reason}"

    def _note_refusal(self, informer: Informer, reason: str) -> None:
        if informer is not self._jobsets or TRAINJOBS in self._jobs:  # nothing else needs JobSets
            self._unread[informer.name] = reason

    # Jobs

    def _job_changed(self, kind: Resource, delta: Delta) -> None:
        self._mark(kind, delta.key)

    def _jobset_changed(self, delta: Delta) -> None:
        self._mark(TRAINJOBS, delta.key)

    def _pod_changed(self, delta: Delta) -> None:
        for owner in jobs_of(delta.new or delta.old or {}):
            word, _, key = owner.partition(" ")
            if word in self._kinds:
                self._mark(self._kinds[word], key)

    def _mark(self, kind: Resource, key: str) -> None:
        self._table.mark(kind, key)
        self._on_change()

    def _pods_of(self, job: Job) -> list[JsonObject]:
        label = JOBSET_LABEL if job.is_trainjob else JOB_NAME_LABEL
        return [pod for pod in self._pods[label].store.by_index(_OWNER, owner_key(job)) if is_own(pod, job)]

    # Nodes

    def _usages(self) -> list[NodeUsage] | None:
        if not self._nodes.has_synced:
            return None
        return node_usages(self._nodes.store.each(), self._bound.store.each())

    # Managers

    def _managers(self, now: datetime) -> Managers | None:
        if not self._manager_pods.has_synced and self._embedded is None:
            return None
        leases = list(self._leases.store.each()) if self._leases.has_synced else None
        return managers_of(self._manager_pods.store.each(), leases, now=now, embedded=self._embedded)

    async def _read_embedded(self) -> None:
        while True:
            with contextlib.suppress(KubeError):  # informers tell of that
                self._embedded = await manager_status(self._client)
                if self._embedded is None:
                    break
            self._embedded_read.set()
            self._on_change()
            await asyncio.sleep(_ASK_EVERY)
        self._embedded_read.set()
