"""The reconciler of TrainJobs: what it makes of what the caches show, and of own writes that they do not show yet."""

from __future__ import annotations

import asyncio
import threading

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import World, refused, world_with

from trainmaster.controller.reconciling.outcomes import (
    DONE,
    LONGEST_REQUEUE,
    ExpectationsPending,
    Requeue,
    RequeueAfter,
    TerminalError,
)
from trainmaster.controller.reconciling.trainjobs.decider import LARGE
from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject


@pytest.mark.guarantee("C-12", "A-7")
async def test_a_settled_job_costs_no_request() -> None:
    world = world_with(suspend=True)
    assert await world.reconcile() == DONE
    assert world.requests == ["apply ConfigMap", "apply JobSet", "patch status"]
    for _ in range(3):
        assert await world.reconcile() == DONE
    assert len(world.requests) == 3


@pytest.mark.guarantee("C-12")
async def test_a_restart_costs_no_request_either() -> None:
    """Nothing that was remembered is needed."""
    world = world_with(suspend=True)
    await world.reconcile()
    world.restart()
    world.requests.clear()
    assert await world.reconcile() == DONE
    assert world.requests == []


@pytest.mark.guarantee("C-1", "C-4")
async def test_no_key_is_reconciled_before_the_cache_shows_its_own_writes() -> None:
    world = world_with()
    world.lagging = True
    await world.reconcile()
    assert world.requests == ["apply ConfigMap", "apply JobSet"]
    for _ in range(5):
        assert isinstance(await world.reconcile(), ExpectationsPending)
    world.show(world.find("ConfigMap", "demo-runtime-snapshot"))
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.show(world.find("JobSet"))
    assert await world.reconcile() == DONE
    assert len(world.requests) == 2


@pytest.mark.guarantee("C-4", "E-5")
async def test_the_successor_of_a_name_sees_what_its_predecessor_left() -> None:
    """Otherwise it would apply its own JobSet over the one of the job before it, and take over its pods."""
    world = world_with()
    world.lagging = True
    await world.reconcile()
    world.remove("TrainJob")
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.put(trainjob_object(uid="uid-2"))
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.show(world.find("ConfigMap", "demo-runtime-snapshot"))
    world.show(world.find("JobSet"))
    assert isinstance(await world.reconcile(), RequeueAfter)  # garbage collection will come
    assert world.requests == ["apply ConfigMap", "apply JobSet"]


@pytest.mark.guarantee("C-5")
async def test_an_own_status_write_does_not_hold_up_the_successor() -> None:
    world = world_with(suspend=True)
    await world.reconcile()
    world.lagging = True
    world.change("TrainJob", status={})
    world.show(world.find("TrainJob"))
    await world.reconcile()
    assert isinstance(await world.reconcile(), ExpectationsPending)
    world.put(trainjob_object(uid="uid-2", suspend=True))
    assert not isinstance(await world.reconcile(), ExpectationsPending)


@pytest.mark.guarantee("K-3")
async def test_an_unreadable_trainjob_is_given_up_until_it_changes() -> None:
    world = world_with(suspend="yes")
    outcome = await world.reconcile()
    assert isinstance(outcome, TerminalError)
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"
    assert isinstance(await world.reconcile(), TerminalError)
    assert world.requests == ["patch status"]
    assert len(world.events) == 1


async def test_an_unreadable_trainjob_of_another_controller_is_left_alone() -> None:
    """Whoever manages it writes its status; two writers would fight."""
    world = World()
    world.put(trainjob_object(managedBy="kueue.x-k8s.io/multikueue", suspend="yes"))
    await world.reconcile()
    assert not world.patches
    assert not world.events
    world.put(trainjob_object(suspend="yes"))
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"


@pytest.mark.parametrize("status", [{"conditions": [{"message": "odd"}]}, {"conditions": None}, {"conditions": {}}])
async def test_an_odd_status_is_no_reason_to_fail(status: JsonObject) -> None:
    world = World()
    world.put(trainjob_object(suspend="yes", status=status))
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "TrainJobInvalid"


async def test_a_jobset_that_cannot_be_read_and_whose_runtime_is_gone_holds_nobody_up() -> None:
    """The plugin that fails is one of ours, and asked once."""
    world = World()
    world.put(runtime_object(), trainjob_object())
    await world.reconcile()
    world.remove("ConfigMap", "demo-runtime-snapshot")
    world.remove("TrainingRuntime", "rt")
    world.change("JobSet", status={"conditions": ["Failed"]})
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "RuntimeNotFound"


async def test_a_blocked_job_is_looked_at_again_at_its_deadline() -> None:
    """The backoff of what blocks it may be much longer."""
    world = World()
    world.refusal = refused("no")
    world.put(trainjob_object(activeDeadlineSeconds=60), runtime_object())
    outcome = await world.reconcile()
    assert isinstance(outcome, Requeue)
    assert outcome.at_latest == 60
    await world.reconcile_after(60)
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"


async def test_a_deadline_beyond_the_calendar_is_no_deadline_soon() -> None:
    """activeDeadlineSeconds is any 64-bit number; it is looked at now and then, because clocks are set."""
    world = world_with(activeDeadlineSeconds=2**63 - 1)
    outcome = await world.reconcile()
    assert isinstance(outcome, RequeueAfter)
    assert outcome.seconds == LONGEST_REQUEUE


class Spinning:
    """A plugin that computes until the event loop has turned."""

    name = "spinning"

    def __init__(self) -> None:
        self.turns = 0
        self.threads: list[threading.Thread] = []

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        self.threads.append(threading.current_thread())
        before = self.turns
        while threading.current_thread() is not threading.main_thread() and self.turns < before + 100:
            pass


@pytest.mark.parametrize("large", ["TrainJob", "TrainingRuntime"])
async def test_the_event_loop_turns_while_a_large_job_is_planned(large: str) -> None:
    """Watches, webhooks and probes do not wait for it."""
    plugin = Spinning()
    world, objects = World(plugin), {"TrainJob": trainjob_object(suspend=True), "TrainingRuntime": runtime_object()}
    objects[large]["metadata"]["annotations"] = {"padding": "x" * LARGE}
    world.put(*objects.values())
    reconciled = asyncio.create_task(world.reconcile())
    while not reconciled.done():
        plugin.turns += 1
        await asyncio.sleep(0)
    assert reconciled.result() == DONE
    assert world.requests == ["apply ConfigMap", "apply JobSet", "patch status"]
    assert threading.main_thread() not in plugin.threads


async def test_a_usual_job_is_planned_without_a_thread() -> None:
    plugin = Spinning()
    world = World(plugin)
    world.put(trainjob_object(), runtime_object())
    await world.reconcile()
    assert set(plugin.threads) == {threading.main_thread()}
