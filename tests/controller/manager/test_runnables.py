"""The controllers under election: waiting for caches, finishing what they are at, and when they are cancelled."""

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
    LeaderElectionRunnables,
    drain,
)
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.reconciling.outcomes import DONE, Outcome
from trainmaster.controller.server.server import Server

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


class Working:
    """A controller at work on one key, until it may finish."""

    def __init__(self) -> None:
        self.clock, self.stop = VirtualClock(), asyncio.Event()
        self.finish, self.ended, self.finished = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.queue = WorkQueue(clock=self.clock)
        self.queue.add("a/b")
        controller = Controller("c", self.reconcile, self.queue, workers=1, timeout=1000, clock=self.clock)
        runnables = runnables_without_cluster([controller], self.clock)
        self.task = asyncio.create_task(runnables._run_controllers(asyncio.create_task(self.stop.wait())))

    async def reconcile(self, key: str) -> Outcome:
        try:
            await self.finish.wait()
            self.finished.set()
        finally:
            self.ended.set()
        return DONE


@pytest.mark.guarantee("L-9", "L-10")
async def test_losing_the_lease_ends_every_reconcile() -> None:
    """Another replica may act now, so the work is over when its cancellation is, and not some time later."""
    working = Working()
    await settle()
    working.task.cancel()
    await asyncio.wait([working.task])
    assert working.task.cancelled()
    assert working.ended.is_set()
    working.stop.set()
    await settle()


@pytest.mark.guarantee("K-6")
async def test_reconciles_finish_before_the_controllers_stop() -> None:
    working = Working()
    await settle()
    working.queue.add("a/c")
    working.stop.set()
    await settle()
    assert not working.task.done()
    working.finish.set()
    await working.task
    assert working.finished.is_set()


@pytest.mark.guarantee("K-6")
async def test_a_reconcile_that_does_not_finish_is_cancelled_after_the_grace() -> None:
    working = Working()
    await settle()
    working.stop.set()
    with capture_logs() as logged:
        await working.clock.advance(CONTROLLERS_GRACE - 0.1)
        assert not working.task.done()
        await working.clock.advance(0.2)
    assert working.task.done()
    working.task.result()
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
    """Without servers, or without a delay, nothing is waited for."""
    clock, stop, servers = VirtualClock(), asyncio.Event(), [DrainedServer(), DrainedServer()]
    draining = asyncio.create_task(drain(stop, cast("list[Server]", servers), delay=5.0, clock=clock))
    await clock.advance(100)
    assert [server.drained for server in servers] == [0, 0]
    assert not draining.done()
    stop.set()
    await clock.advance(4.9)
    assert [server.drained for server in servers] == [1, 1]
    assert not draining.done()
    await clock.advance(0.2)
    assert draining.done()
    server = cast("Server", DrainedServer())
    at_once = [drain(stop, [], delay=5.0, clock=clock), drain(stop, [server], delay=0.0, clock=clock)]
    await asyncio.gather(*at_once)
