"""What a TrainJob's own writes cost when the caches show them: no reconcile, and no change of anybody else is lost."""

from __future__ import annotations

from typing import Any

import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.plugins import Counting
from support.world import JOBSET_COMPLETED, World, guarded_world, world_with

from trainmaster.controller.diagnosis.diagnosis import FIRST_LOOK_FOR_JOBS as FIRST_LOOK
from trainmaster.controller.kube.cache.store import object_key
from trainmaster.controller.reconciling.outcomes import DONE
from trainmaster.runtime.jsontree import JsonObject

RUNNING = {"replicatedJobsStatus": [{"name": "node", "active": 1, "ready": 1}]}


async def running_world() -> World:
    world = world_with()
    await world.work()
    world.change("JobSet", status=RUNNING)
    world.clock.step(1)
    await world.work()
    await world.clock.advance(1)
    await world.work()
    return world


async def catch_up(world: World) -> int:
    """Have the caches show what they lack, and count the reconciles that follow."""
    world.lagging = False
    for obj in world.server.values():
        store = world.stores[obj["apiVersion"], obj["kind"]]
        if "resourceVersion" in obj["metadata"] and not store.holds(object_key(obj), obj):
            world.show(obj)
    return await world.work()


@pytest.mark.defect("B23")
@pytest.mark.parametrize("lagging", [True, False], ids=["late", "before-the-answer"])
@pytest.mark.parametrize("suspend", [True, False], ids=["suspended", "running"])
async def test_a_new_trainjob_is_reconciled_once(lagging: bool, suspend: bool) -> None:
    world = world_with(suspend=suspend)
    world.lagging = lagging
    assert await world.work() == 1
    assert world.requests == ["apply ConfigMap", "apply JobSet", *(["patch status"] if suspend else [])]
    assert await catch_up(world) == 0
    assert (len(world.reconciler.echoes), world.events) == (0, [])
    world.clock.step(3600)
    assert world.reconciler.unobserved() == []
    assert await world.reconcile() == DONE
    assert len(world.requests) == (3 if suspend else 2)


@pytest.mark.parametrize("lagging", [True, False], ids=["late", "before-the-answer"])
async def test_each_report_of_a_jobset_is_one_reconcile(lagging: bool) -> None:
    world = await running_world()
    world.lagging = lagging
    world.show(world.store({**world.find("JobSet"), "status": JOBSET_COMPLETED}))
    assert await world.work() == 1
    assert world.conditions["Complete"]["status"] == "True"
    assert await catch_up(world) == 0


@pytest.mark.parametrize("lagging", [True, False], ids=["late", "before-the-answer"])
@pytest.mark.parametrize("of", ["TrainJob", "JobSet", "ConfigMap"])
async def test_what_others_change_while_it_is_built_is_never_lost(of: str, lagging: bool) -> None:
    """Whatever was read before, and however soon after the write the change comes."""
    world = world_with()
    world.lagging = lagging

    def interfere(written: JsonObject) -> None:
        if written["kind"] != "JobSet":
            return
        world.on_write = lambda obj: None
        if of == "TrainJob":
            spec = {**world.find("TrainJob")["spec"], "suspend": True}
            world.change("TrainJob", spec=spec)
        elif of == "JobSet":
            world.change("JobSet", status=JOBSET_COMPLETED)
        else:
            world.change("ConfigMap", name="demo-runtime-snapshot", data={})

    world.on_write = interfere
    reconciled = await world.work()
    assert reconciled == 1 if lagging else reconciled > 1
    assert await catch_up(world) >= lagging
    condition = {"TrainJob": "Suspended", "JobSet": "Complete", "ConfigMap": "Blocked"}[of]
    assert world.conditions[condition]["status"] == "True"


@pytest.mark.parametrize("ttl", [0, 1, 60])
async def test_a_job_that_has_ended_is_deleted_in_time(ttl: int) -> None:
    world = world_with(ttlSecondsAfterFinished=ttl)
    await world.work()
    world.change("JobSet", status=JOBSET_COMPLETED)
    await world.work()
    if ttl:
        assert world.deleted == []
        await world.clock.advance(ttl)
        await world.work()
    assert world.deleted == [("demo", "uid-1")]


async def test_a_deadline_is_kept() -> None:
    world = world_with(activeDeadlineSeconds=60)
    assert await world.work() == 1
    await world.clock.advance(60)
    await world.work()
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"
    assert ("demo", world.deleted[0][1]) in world.deleted


async def test_a_jobset_whose_jobs_may_be_refused_is_looked_at() -> None:
    world = World()
    world.put(trainjob_object(), runtime_object(replicated_job(containers=[{"name": "node"}])))
    assert await world.work() == 2
    await world.clock.advance(FIRST_LOOK)
    await world.work()
    assert [each for each in world.requests if each.startswith("list Event")]


async def test_what_admission_made_of_an_object_is_looked_at() -> None:
    world = world_with()
    apply = world.apply

    async def admitted(resource: Any, obj: JsonObject, **arguments: Any) -> JsonObject:
        if obj["kind"] == "JobSet" and not any(kind == "JobSet" for kind, _ in world.server):
            obj = {**obj, "spec": {**obj["spec"], "suspend": True}}
        return await apply(resource, obj, **arguments)

    world.apply = admitted  # type: ignore[method-assign]
    assert await world.work() >= 2
    assert world.requests.count("apply JobSet") == 2


async def test_a_workload_that_is_built_again_is_looked_at_again() -> None:
    world = await running_world()
    world.remove("JobSet")
    world.queue.add("team/demo")
    assert await world.work() == 2


async def test_a_plugin_of_others_sees_what_was_written() -> None:
    plugin = Counting()
    with guarded_world(plugin) as world:
        assert await world.work() == 2
        assert plugin.calls == 2
