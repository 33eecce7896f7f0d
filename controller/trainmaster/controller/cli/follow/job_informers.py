"""What a cluster tells of followed TrainJobs: the jobs, their pods, and events, one observation after the other.

The informers neither log nor give up: that the cluster is away, or refuses something, is told to whoever follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainmaster.controller.cli.follow.job_status import FollowedJob
from trainmaster.controller.cli.follow.reachability import Reachability
from trainmaster.controller.container_failures import JOBSET_LABEL
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import EVENTS, PODS, Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of an object."""

    resource: Resource
    object: JsonObject
    is_deleted: bool = False
    """Whether it is the last one."""


class JobInformers:
    """Reads what there is of some jobs, and what becomes of it.

    Args:
        client: Where it is read.
        jobs: The jobs.
        on_outage: Called with the reason when the cluster cannot be reached, and with None when it can again.
        on_refusal: Called when something may not be read, with what to do about it.
    """

    def __init__(
        self,
        client: KubeClient,
        jobs: Sequence[FollowedJob],
        *,
        on_outage: Callable[[str | None], object],
        on_refusal: Callable[[str], object],
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._reachability = Reachability(on_outage=on_outage, on_refusal=lambda _, reason: on_refusal(reason))
        self._observations: asyncio.Queue[Observation] = asyncio.Queue()
        self._informers = [informer for namespace in _namespaces(jobs) for informer in self._of(namespace)]

    async def run(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())

    async def next(self) -> Observation:
        """Return the next observation; `done` is to be called when it was taken note of."""
        return await self._observations.get()

    def done(self) -> None:
        """Tell that an observation was taken note of."""
        self._observations.task_done()

    async def absent(self) -> list[FollowedJob]:
        """Return the jobs that were deleted before they could be read: no observation will come of those."""
        for informer in self._informers:
            await informer.wait_synced()
        stores = [informer.store for informer in self._informers if informer.resource == TRAINJOBS]
        await self._observations.join()
        return [job for job in self._jobs if all(store.get(job.key) is None for store in stores)]

    async def catch_up(self) -> None:
        """Wait until note was taken of all pods as they are now: the informers of different kinds wait for nobody."""
        for namespace in _namespaces(self._jobs):
            try:
                pods = await self._client.list(PODS, namespace, label_selector=self._selector(namespace))
            except KubeError:
                continue
            for pod in pods["items"]:
                self._observations.put_nowait(Observation(PODS, pod))
        await self._observations.join()

    def _of(self, namespace: str) -> list[Informer]:
        return [
            self._informer(TRAINJOBS, namespace),
            self._informer(PODS, namespace, self._selector(namespace)),
            self._informer(EVENTS, namespace),
        ]

    def _informer(self, resource: Resource, namespace: str, selector: str | None = None) -> Informer:
        informer = Informer(
            self._client,
            resource,
            InformerOptions(namespaces=[namespace], label_selector=selector),
            outages=self._reachability.outages,
            on_state_change=self._reachability.changed,
        )

        def observe(delta: Delta) -> None:
            # That events expire, and how often they repeat, is no news.
            if delta.is_addition or resource != EVENTS:
                obj = (delta.old if delta.is_deletion else delta.new) or {}
                self._observations.put_nowait(Observation(resource, obj, is_deleted=delta.is_deletion))

        informer.add_event_handler(observe)
        return informer

    def _selector(self, namespace: str) -> str:
        names = sorted(job.name for job in self._jobs if job.namespace == namespace)
        return f"{JOBSET_LABEL} in ({','.join(names)})"


def _namespaces(jobs: Sequence[FollowedJob]) -> list[str]:
    return sorted({job.namespace for job in jobs})
