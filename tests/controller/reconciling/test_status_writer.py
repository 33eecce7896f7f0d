"""How often a status is written."""

from __future__ import annotations

from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import World, world_with

from trainmaster.controller.kube.rest.errors import Conflict
from trainmaster.controller.reconciling.outcomes import DONE, Requeue, RequeueAfter
from trainmaster.controller.reconciling.status_writer import COUNTERS_INTERVAL
from trainmaster.runtime.jsontree import JsonObject


def counters(**counts: int) -> list[JsonObject]:
    return [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **counts}]


def report(world: World, *conditions: JsonObject, **counts: int) -> None:
    world.change("JobSet", status={"replicatedJobsStatus": counters(**counts), "conditions": list(conditions)})


def shown(world: World) -> Any:
    return (world.find("TrainJob").get("status") or {}).get("jobsStatus")


@pytest.fixture
async def world() -> World:
    """A world in which the job has been built."""
    world = world_with()
    await world.reconcile()
    assert world.requests == ["apply ConfigMap", "apply JobSet"]
    return world


async def test_counters_are_written_once_a_second_at_most_and_the_last_ones_surely(world: World) -> None:
    """Twenty changes within a second are one write, of the last of them, when a second has passed."""
    for active in range(20):
        report(world, active=active, ready=active)
        outcome = await world.reconcile()
        assert isinstance(outcome, RequeueAfter)
        assert outcome.seconds == pytest.approx(COUNTERS_INTERVAL - active / 20)
        world.clock.step(0.05)
    assert world.patches == []
    assert await world.reconcile() == DONE
    assert len(world.patches) == 1
    assert shown(world) == counters(active=19, ready=19)
    report(world, active=20, ready=20)
    assert isinstance(await world.reconcile(), RequeueAfter)
    assert await world.reconcile_after(COUNTERS_INTERVAL) == DONE
    assert len(world.patches) == 2


async def test_counters_that_go_back_to_what_is_written_are_not_written(world: World) -> None:
    report(world, active=1)
    await world.reconcile()
    world.change("JobSet", status={})
    assert await world.reconcile() == DONE
    assert await world.reconcile_after(10) == DONE
    assert world.patches == []
    report(world, active=1)
    outcome = await world.reconcile()
    assert isinstance(outcome, RequeueAfter)
    assert outcome.seconds == COUNTERS_INTERVAL


async def test_a_blocked_job_gets_its_counters_in_time_as_well() -> None:
    """Whatever the backoff of what blocks it."""

    class Moody:
        name = "Moody"
        mood = True

        def enforce_pod_spec(self, info: Any, job: Any) -> None:
            if not self.mood:
                raise KeyError("mood")

    moody = Moody()
    world = World(moody)
    world.put(trainjob_object(), runtime_object())
    await world.reconcile()
    moody.mood = False
    assert isinstance(await world.reconcile(), Requeue)
    report(world, active=1)
    outcome = await world.reconcile()
    assert isinstance(outcome, Requeue)
    assert outcome.at_latest == COUNTERS_INTERVAL


async def test_a_job_that_is_gone_leaves_nothing_behind(world: World) -> None:
    report(world, active=1)
    await world.reconcile()
    world.remove("TrainJob")
    assert await world.reconcile() == DONE
    assert not world.reconciler._status_writer._due
    assert not world.reconciler._problem_reporter._reported
    assert len(world.reconciler._expectations) == 0


@pytest.mark.guarantee("C-11")
async def test_the_status_is_all_that_a_status_patch_changes() -> None:
    world = world_with(suspend=True)
    await world.reconcile()
    (patch,) = world.patches
    assert patch.keys() == {"metadata", "status"}


@pytest.mark.guarantee("C-9", "C-10")
async def test_a_status_that_was_read_too_early_is_not_written() -> None:
    world = world_with(suspend=True)
    await world.reconcile()
    stale = world.find("TrainJob")
    world.change("TrainJob", spec={"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, "suspend": False})
    world.show(stale | {"spec": stale["spec"] | {"suspend": False}})
    with pytest.raises(Conflict, match="resourceVersion"):
        await world.reconcile()
    assert world.conditions["Suspended"]["status"] == "True"
