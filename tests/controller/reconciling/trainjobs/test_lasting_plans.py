"""How often a TrainJob is planned: once, as long as nothing changes but the status of the workload that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.plugins import Counting
from support.world import JOBSET_COMPLETED, KEY, World

from trainmaster.runtime.info import Info


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
    world.change("JobSet", status=JOBSET_COMPLETED)
    assert await world.plans() == 0
    assert world.conditions["Complete"]["status"] == "True"


def changed(world: World, kind: str, field: str, name: str = "demo", **fields: Any) -> None:
    """Have somebody change fields below the spec or the metadata of an object."""
    world.change(kind, name=name, **{field: {**world.find(kind, name)[field], **fields}})


HAPPENINGS: dict[str, Callable[[World], None]] = {
    "the TrainJob is suspended": lambda world: changed(world, "TrainJob", "spec", suspend=True),
    "the TrainJob is annotated": lambda world: changed(world, "TrainJob", "metadata", annotations={"a": "b"}),
    "the JobSet is suspended": lambda world: changed(world, "JobSet", "spec", suspend=True),
    "the JobSet is deleted": lambda world: world.remove("JobSet"),
    "the JobSet loses its Jobs": lambda world: world.change("JobSet", status={"replicatedJobsStatus": []}),
    "the snapshot is labelled": lambda world: changed(
        world, "ConfigMap", "metadata", "demo-runtime-snapshot", labels={"a": "b"}
    ),
    # As a resync does, and the function of a plugin.
    "it is asked for anew": lambda world: world.reconciler.echoes.add(KEY, None, anew=True),
}


@pytest.mark.parametrize("happens", HAPPENINGS)
async def test_whatever_else_happens_has_it_planned_again(happens: str) -> None:
    world = await PlannedWorld.built()
    assert await world.report(active=1, ready=1) == 0
    HAPPENINGS[happens](world)
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
