"""What a reconcile of a TrainJob costs: what is read, how often it is planned, and what own writes cost: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.plugins import Counting
from support.world import JOBSET_COMPLETED, KEY, World, guarded_world, world_with

from trainmaster.controller.diagnosis.diagnosis import FIRST_LOOK_FOR_JOBS as FIRST_LOOK
from trainmaster.controller.kube.cache.store import object_key
from trainmaster.controller.plugins.guard import PluginGuard
from trainmaster.controller.reconciling.outcomes import DONE, Requeue
from trainmaster.runtime.info import Info
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
    assert (len(world.reconciler.event_filter), world.events) == (0, [])
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
    "it is asked for anew": lambda world: world.reconciler.event_filter.add(KEY, None, anew=True),
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
    world.reconciler.event_filter.add(KEY, None, anew=True)
    await world.work()
    assert world.conditions["Blocked"]["reason"] == "PluginFailed"
    await world.report(active=1, ready=0, failed=1)
    assert world.conditions["Blocked"]["reason"] == "PluginFailed"


class Bystander:
    """A plugin of somebody else."""

    name = "bystander"

    def enforce_pod_spec(self, info: Any, job: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("foreign", "jobsets"), [(False, ["JobSet"]), (True, ["JobSet", "JobSet"])])
async def test_each_object_is_decoded_once_unless_a_plugin_of_others_may_change_it(
    foreign: bool, jobsets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JobSet is read by the plugin that reports the status, and by the plan, which compares with it."""
    guard = PluginGuard(time_limit=60.0, failures=3, period=60.0)
    world = World(Bystander(), guard=guard) if foreign else World()
    world.put(trainjob_object(suspend=True), runtime_object())
    await world.reconcile()
    reads: list[str] = []
    for (_, kind), store in world.stores.items():

        def noted(read: Callable[..., Any], kind: str = kind) -> Callable[..., Any]:
            def reading(*arguments: str) -> Any:
                found = read(*arguments)
                found = list(found) if isinstance(found, Iterator) else found
                reads.extend([kind] * (len(found) if isinstance(found, list) else found is not None))
                return found

            return reading

        for method in ("get", "by_index", "body"):
            monkeypatch.setattr(store, method, noted(getattr(store, method)))
    await world.reconcile()
    assert sorted(reads) == ["ConfigMap", *jobsets, "TrainJob"]


@pytest.mark.parametrize("error", [SystemExit("no licence"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_a_plugin_that_would_end_the_process_blocks_its_trainjob_only(error: BaseException) -> None:
    class Leaver:
        name = "leaver"

        def enforce_pod_spec(self, info: Any, job: Any) -> None:
            raise error

    world = World(Leaver())
    world.put(trainjob_object(), runtime_object())
    assert isinstance(await world.reconcile(), Requeue)
    (blocked,) = (each for each in world.patches[-1]["status"]["conditions"] if each["type"] == "Blocked")
    assert blocked["reason"] == "PluginFailed"
    assert blocked["message"].startswith(f"plugin leaver failed in enforce_pod_spec: {type(error).__name__}")


async def test_a_runtime_that_the_cache_has_not_seen_is_asked_for_before_it_is_missing() -> None:
    """Two watches have no common order: the TrainJob may be seen before the runtime that was created first."""
    world = World()
    world.put(trainjob_object())
    world.server["TrainingRuntime", "team/rt"] = runtime_object()
    assert await world.reconcile() == DONE
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap", "JobSet"]
    assert (world.events, world.patches) == ([], [])


async def test_a_finished_trainjob_asks_for_no_runtime() -> None:
    world = World()
    condition = {"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "done"}
    world.put(trainjob_object(status={"conditions": [condition]}))
    await world.reconcile()
    assert "get TrainingRuntime" not in world.requests
