"""How often a TrainJob is planned: once, as long as nothing changes but the status of the workload that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import KEY, World

from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject

COMPLETED = {
    "conditions": [{"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}],
    "replicatedJobsStatus": [{"name": "node", "succeeded": 1}],
}


class Counting:
    """A plugin that counts how often it is called."""

    name = "counting"

    def __init__(self) -> None:
        self.calls = 0

    def enforce_ml_policy(self, info: Info) -> None:
        self.calls += 1


class PlannedWorld(World):
    """A TrainJob whose JobSet is built."""

    def __init__(self) -> None:
        self.plugin = Counting()
        super().__init__(self.plugin)

    @classmethod
    async def built(cls, **spec: Any) -> PlannedWorld:
        world = cls()
        world.put(trainjob_object(**spec), runtime_object())
        await world.work()
        return world

    async def plans(self) -> int:
        """Work, and tell how often it was planned meanwhile."""
        before = self.plugin.calls
        await self.work()
        return self.plugin.calls - before

    async def report(self, **counts: int) -> int:
        self.change("JobSet", status={"replicatedJobsStatus": [{"name": "node", **counts}]})
        await self.clock.advance(1)
        return await self.plans()


async def test_a_whole_life_is_planned_once() -> None:
    world = await PlannedWorld.built()
    assert world.plugin.calls == 1
    assert await world.report(active=1) == 0
    assert await world.report(active=1, ready=1) == 0
    assert world.find("TrainJob")["status"]["jobsStatus"][0]["ready"] == 1
    world.change("JobSet", status=COMPLETED)
    assert await world.plans() == 0
    assert world.conditions["Complete"]["status"] == "True"


def _suspend_trainjob(world: World) -> None:
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": True})


def _annotate_trainjob(world: World) -> None:
    metadata = world.find("TrainJob")["metadata"]
    world.change("TrainJob", metadata={**metadata, "annotations": {"a": "b"}})


def _suspend_jobset(world: World) -> None:
    world.change("JobSet", spec={**world.find("JobSet")["spec"], "suspend": True})


def _delete_jobset(world: World) -> None:
    world.remove("JobSet")


def _lose_all_jobs(world: World) -> None:
    world.change("JobSet", status={"replicatedJobsStatus": []})


def _change_snapshot(world: World) -> None:
    world.change("ConfigMap", name="demo-runtime-snapshot", metadata={**_snapshot(world), "labels": {"a": "b"}})


def _ask_anew(world: World) -> None:
    """As a resync does, and the function of a plugin."""
    world.reconciler.echoes.add(KEY, None, anew=True)


def _snapshot(world: World) -> JsonObject:
    metadata: JsonObject = world.find("ConfigMap", "demo-runtime-snapshot")["metadata"]
    return metadata


@pytest.mark.parametrize(
    "happens",
    [
        _suspend_trainjob,
        _annotate_trainjob,
        _suspend_jobset,
        _delete_jobset,
        _lose_all_jobs,
        _change_snapshot,
        _ask_anew,
    ],
)
async def test_whatever_else_happens_has_it_planned_again(happens: Callable[[World], None]) -> None:
    world = await PlannedWorld.built()
    assert await world.report(active=1, ready=1) == 0
    happens(world)
    assert await world.plans() >= 1


async def test_a_suspended_job_is_planned_each_time() -> None:
    world = await PlannedWorld.built(suspend=True)
    assert await world.report(suspended=1) == 1
    assert await world.report(suspended=1, active=0) == 1


async def test_a_job_that_is_resumed_is_planned_until_its_jobset_runs() -> None:
    world = await PlannedWorld.built(suspend=True)
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": False})
    assert await world.plans() >= 1
    assert world.find("JobSet")["spec"]["suspend"] is False
    await world.report(active=1)
    assert await world.report(active=1, ready=1) == 0


async def test_a_plan_that_is_followed_by_another_one_does_not_last() -> None:
    """Whatever that one found is still so when the next status comes."""
    world = await PlannedWorld.built()
    assert await world.report(active=1, ready=1) == 0

    def fail(info: Info) -> None:
        raise KeyError("mood")

    world.plugin.enforce_ml_policy = fail  # type: ignore[method-assign]
    world.reconciler.echoes.add(KEY, None, anew=True)
    await world.work()
    assert world.conditions["Blocked"]["reason"] == "PluginFailed"
    await world.report(active=1, ready=0, failed=1)
    assert world.conditions["Blocked"]["reason"] == "PluginFailed"
