"""The controllers under election: waiting for caches, finishing what they are at, and when they are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from structlog.testing import capture_logs
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.cli.manager import STOP_AT_MOST
from trainmaster.controller.configuration import LONGEST_SHUTDOWN_DELAY
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.runnables import (
    CONTROLLERS_GRACE,
    EVENTS_GRACE,
    STOP_TIMEOUT,
    Draining,
    LeaderElectionRunnables,
    drain,
)
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.reconciling.outcomes import DONE, Outcome

pytestmark = pytest.mark.usefixtures("debugged")


class NoRecorder:
    """Events that nobody writes."""

    async def flush(self, seconds: float) -> None:
        pass


class UnsyncedCaches:
    """Caches that never sync."""

    async def wait_for_sync(self) -> None:
        await asyncio.Event().wait()

    def not_synced(self) -> list[str]:
        return ["jobsets.jobset.x-k8s.io"]


def runnables_without_cluster(
    controllers: Sequence[Controller], clock: VirtualClock | None = None
) -> LeaderElectionRunnables:
    """Controllers without a cluster, whose caches never sync."""
    return LeaderElectionRunnables(
        caches=cast("Caches", UnsyncedCaches()),
        controllers=controllers,
        recorder=cast("EventRecorder", NoRecorder()),
        election=None,
        clock=clock or SystemClock(),
        on_caches_synced=lambda: None,
    )


@pytest.mark.guarantee("L-9", "L-10")
async def test_losing_the_lease_ends_every_reconcile() -> None:
    """Another replica may act now, so the work is over when its cancellation is, and not some time later."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return DONE

    queue = WorkQueue()
    queue.add("a/b")
    stopped = asyncio.create_task(asyncio.Event().wait())
    controllers = [Controller("losing", reconcile, queue, workers=1)]
    working = asyncio.create_task(runnables_without_cluster(controllers)._run_controllers(stopped))
    await asyncio.wait_for(started.wait(), 5)
    working.cancel()
    await asyncio.wait([working])
    stopped.cancel()
    assert working.cancelled()
    assert ended.is_set()


@pytest.mark.guarantee("K-6")
async def test_reconciles_finish_before_the_controllers_stop() -> None:
    started, finish, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        started.set()
        await finish.wait()
        finished.set()
        return DONE

    queue = WorkQueue()
    queue.add("a/b")
    stop = asyncio.Event()
    stopped = asyncio.create_task(stop.wait())
    controllers = [Controller("finishing", reconcile, queue, workers=1)]
    working = asyncio.create_task(runnables_without_cluster(controllers)._run_controllers(stopped))
    await asyncio.wait_for(started.wait(), 5)
    queue.add("a/c")
    stop.set()
    await settle()
    assert not working.done()
    finish.set()
    await asyncio.wait_for(working, 5)
    assert finished.is_set()


@pytest.mark.guarantee("K-6")
async def test_a_reconcile_that_does_not_finish_is_cancelled_after_the_grace() -> None:
    clock = VirtualClock()

    async def reconcile(key: str) -> Outcome:
        await asyncio.Event().wait()
        return DONE

    queue = WorkQueue(clock=clock)
    queue.add("a/b")
    stop = asyncio.Event()
    stopped = asyncio.create_task(stop.wait())
    controllers = [Controller("hanging", reconcile, queue, workers=1, timeout=1000, clock=clock)]
    working = asyncio.create_task(runnables_without_cluster(controllers, clock)._run_controllers(stopped))
    await clock.advance(0)
    stop.set()
    with capture_logs() as logged:
        await clock.advance(CONTROLLERS_GRACE - 0.1)
        assert not working.done()
        await clock.advance(0.2)
    assert working.done()
    working.result()
    assert any("did not finish in time" in entry["event"] for entry in logged)


def test_a_stop_takes_less_than_kubernetes_grants() -> None:
    assert CONTROLLERS_GRACE + EVENTS_GRACE < STOP_TIMEOUT < 28 < STOP_AT_MOST < 30
    assert LONGEST_SHUTDOWN_DELAY < STOP_TIMEOUT, "the controllers stop meanwhile"


@pytest.mark.guarantee("K-2")
async def test_caches_that_are_not_synced_are_warned_of_until_they_are() -> None:
    clock = VirtualClock()
    stop = asyncio.Event()
    stopped = asyncio.create_task(stop.wait())
    with capture_logs() as logged:
        waiting = asyncio.create_task(runnables_without_cluster([], clock)._wait_for_cache_sync(stopped))
        await clock.advance(1200)
        assert not waiting.done()
    assert [entry["seconds"] for entry in logged] == [10, 30, 60, 120, 240, 540, 840, 1140]
    assert [entry["log_level"] for entry in logged] == ["warning"] * 3 + ["error"] * 5
    assert logged[0]["missing"] == ["jobsets.jobset.x-k8s.io"]
    assert "CustomResourceDefinitions" in logged[0]["hint"]
    stop.set()
    assert await waiting is False


class DrainedServer:
    """Counts how often it is drained."""

    drained = 0

    def drain(self) -> None:
        self.drained += 1


@pytest.mark.guarantee("M-7")
async def test_servers_are_drained_for_the_delay_and_not_longer() -> None:
    clock, stop, servers = VirtualClock(), asyncio.Event(), [DrainedServer(), DrainedServer()]
    draining = asyncio.create_task(drain(stop, servers, delay=5.0, clock=clock))
    await clock.advance(100)
    assert [server.drained for server in servers] == [0, 0]
    assert not draining.done()
    stop.set()
    await clock.advance(4.9)
    assert [server.drained for server in servers] == [1, 1]
    assert not draining.done()
    await clock.advance(0.2)
    assert draining.done()


@pytest.mark.guarantee("M-7")
@pytest.mark.parametrize(("servers", "delay"), [([], 5.0), ([DrainedServer()], 0.0)])
async def test_without_servers_or_delay_nothing_is_waited_for(servers: list[Draining], delay: float) -> None:
    clock, stop = VirtualClock(), asyncio.Event()
    stop.set()
    draining = asyncio.create_task(drain(stop, servers, delay=delay, clock=clock))
    await clock.advance(0)
    assert draining.done()
