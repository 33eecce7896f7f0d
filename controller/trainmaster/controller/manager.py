"""The manager: puts caches, controllers and servers together and runs them until it is told to stop.

Order of start (M-1): probes and metrics, caches, then leader election and controllers. Of stop (M-2): the controllers
finish what they are at, the lease is released, caches and servers end last.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import structlog

from trainmaster.controller.caches import RUNTIMES, Caches
from trainmaster.controller.configuration import OFF, Configuration, LeaderElection, seconds
from trainmaster.controller.kube.client import KubeClient
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.configuration import ClusterAccess
from trainmaster.controller.kube.electing import LeaderElector
from trainmaster.controller.kube.events import EventRecorder
from trainmaster.controller.kube.queueing import WorkQueue
from trainmaster.controller.kube.resources import TRAINJOBS, Resource
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.reconciling.runtimes import RuntimeReconciler
from trainmaster.controller.reconciling.trainjobs.reconciler import TrainJobReconciler
from trainmaster.controller.serving import metrics, probes, serving
from trainmaster.metrics.workqueue import WorkQueueMetrics
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.version import __version__

log = structlog.get_logger(__name__)

TRAINJOB_WORKERS = 16
"""Reconciles wait for the server most of the time, so many fit into one process."""

RUNTIME_WORKERS = 1
STOP_TIMEOUT = 25.0
"""Seconds that controllers get to finish on stop; Kubernetes kills a pod after 30."""

T = TypeVar("T")


class Manager:
    """Runs everything.

    Args:
        access: The cluster.
        configuration: The configuration file.
        framework: The plugins.
        clock: The time.
    """

    def __init__(
        self, access: ClusterAccess, configuration: Configuration, framework: Framework, *, clock: Clock | None = None
    ) -> None:
        self._access = access
        self._configuration = configuration
        self._framework = framework
        self._clock = clock or SystemClock()
        self._identity = f"{socket.gethostname()}_{uuid.uuid4()}"

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set.

        Raises:
            AddressInUse: A server cannot bind its address.
            LeaseLost: Another replica leads now.
        """
        log.info("starting", version=__version__, server=self._access.server, plugins=self._framework.order()["build"])
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(KubeClient(self._access, user_agent=f"trainmaster/{__version__}"))
            caches = Caches(client, self._framework.watches())
            await self._serve(stack, caches)
            recorder = EventRecorder(
                client, reporting_controller="trainer-trainjob-controller", reporting_instance=self._identity
            )
            background: list[asyncio.Task[None]] = [
                asyncio.create_task(caches.run()),
                asyncio.create_task(recorder.run()),
            ]
            stack.push_async_callback(_cancel, background)
            controllers = self._controllers(client, caches, recorder)
            lead = asyncio.create_task(self._lead(client, caches, controllers, stop))
            stack.push_async_callback(_cancel, [lead])
            await _first(lead, *background)
            for task in (lead, *background):
                if task.done():
                    task.result()
        log.info("stopped")

    async def _serve(self, stack: AsyncExitStack, caches: Caches) -> None:
        def is_ready() -> str | None:
            missing = caches.missing()
            return f"waiting for {', '.join(missing)}" if missing else None

        health = self._configuration.health
        if health.health_probe_bind_address != OFF:
            app = probes(
                liveness=health.liveness_endpoint_name, readiness=health.readiness_endpoint_name, is_ready=is_ready
            )
            await stack.enter_async_context(serving(app, health.health_probe_bind_address, purpose="probes"))
        if self._configuration.metrics.bind_address != OFF:
            await stack.enter_async_context(
                serving(metrics(), self._configuration.metrics.bind_address, purpose="metrics")
            )

    def _controllers(self, client: KubeClient, caches: Caches, recorder: EventRecorder) -> list[Controller]:
        queue = self._queue("trainjob_controller")
        caches.connect(queue)
        trainjobs = TrainJobReconciler(
            client=client,
            trainjobs=caches.trainjobs.store,
            stores=caches.stores(),
            framework=self._framework,
            recorder=recorder,
            clock=self._clock,
        )
        workers = self._workers(TRAINJOBS, TRAINJOB_WORKERS)
        controllers = [Controller("trainjob_controller", trainjobs.reconcile, queue, workers=workers)]
        for resource in RUNTIMES:
            name = f"{resource.kind.lower()}_controller"
            queue = self._queue(name)
            caches.connect_runtimes(resource, queue)
            reconciler = RuntimeReconciler(client, resource, caches.runtimes[resource].store)
            workers = self._workers(resource, RUNTIME_WORKERS)
            controllers.append(Controller(name, reconciler.reconcile, queue, workers=workers))
        return controllers

    def _queue(self, name: str) -> WorkQueue:
        return WorkQueue(clock=self._clock, metrics=WorkQueueMetrics(name))

    def _workers(self, resource: Resource, default: int) -> int:
        configured = self._configuration.controller.group_kind_concurrency
        return configured.get(f"{resource.kind}.{resource.group}", default)

    async def _lead(
        self, client: KubeClient, caches: Caches, controllers: list[Controller], stop: asyncio.Event
    ) -> None:
        """Fill the caches, become the leader if there is an election, and run the controllers until told to stop."""
        async with _task(stop.wait()) as stopped:
            async with _task(caches.wait_synced()) as filled:
                await _first(filled, stopped)
                if not filled.done():
                    return
            log.info("caches are filled", trainjobs=len(caches.trainjobs.store))

            async def work() -> None:
                await _run_controllers(controllers, stopped)

            election = self._configuration.leader_election
            if election is None or not election.leader_elect:
                await work()
                return
            elector = self._elector(client, election)
            async with _task(elector.run(work)) as leading:
                await _first(leading, stopped)
                if elector.is_leader or leading.done():
                    await leading
                # else still a candidate: there is nothing to finish

    def _elector(self, client: KubeClient, election: LeaderElection) -> LeaderElector:
        return LeaderElector(
            client,
            lease_namespace=election.resource_namespace or os.environ.get("POD_NAMESPACE") or self._access.namespace,
            lease_name=election.resource_name,
            identity=self._identity,
            lease_duration=seconds(election.lease_duration),
            renew_deadline=seconds(election.renew_deadline),
            retry_period=seconds(election.retry_period),
            clock=self._clock,
        )


async def _run_controllers(controllers: list[Controller], stopped: asyncio.Task[bool]) -> None:
    """Run controllers until told to stop, then let them finish what they are at; cancelled, they stop at once."""

    async def run_all() -> None:
        async with asyncio.TaskGroup() as tasks:
            for controller in controllers:
                tasks.create_task(controller.run())

    async with _task(run_all()) as running:
        await _first(running, stopped)
        for controller in controllers:
            controller.queue.shut_down()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                await running
        except TimeoutError:
            log.warning("some reconciles did not finish in time and were cancelled", seconds=STOP_TIMEOUT)


@asynccontextmanager
async def _task(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run something beside the block; it has ended, whatever way, when the block has."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        await _cancel([task])


async def _first(*awaited: asyncio.Future[Any]) -> None:
    """Wait until one of several ends, whatever way."""
    await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
