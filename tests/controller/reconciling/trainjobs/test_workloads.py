"""Workloads that are no JobSets: deadline, suspension, deletion and the end act on what plugins declared."""

from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.plugins import WorkerSet, choosing, indexed_job
from support.world import World, jobset_of

from trainmaster.controller.kube.rest.errors import Invalid
from trainmaster.controller.reconciling.outcomes import DONE
from trainmaster.runtime.jsontree import JsonObject

NAME = "demo-node-0"
COMPLETED = {"type": "Complete", "status": "True", "reason": "CompletionsReached"}
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
PLUGINS = [indexed_job(), WorkerSet()]

each_workload = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)


def asking_for(plugin: Any, **template: Any) -> JsonObject:
    """A runtime that chooses a plugin."""
    runtime = runtime_object(**template)
    runtime["spec"]["template"]["metadata"] = {"annotations": choosing(plugin)}
    return runtime


async def begun(plugin: Any, *, template: Any = None, **spec: Any) -> World:
    """A world in which a TrainJob has the workload of a plugin."""
    world = World(*PLUGINS)
    world.put(trainjob_object(**spec), asking_for(plugin, **(template or {})))
    await world.reconcile()
    return world


def kind_of(plugin: Any) -> str:
    return next(str(watch.kind) for watch in plugin.watch_extension() if watch.workload)


async def run(world: World, plugin: Any, *conditions: JsonObject) -> None:
    """Have the workload run, or end."""
    status = {"conditions": list(conditions)} if conditions else {"active": 1}
    world.change(kind_of(plugin), name=NAME, status=status)
    await world.reconcile()
    world.clock.step(60)  # counts alone are written seldom
    await world.reconcile()


@each_workload
@pytest.mark.parametrize(("end", "expected"), [(COMPLETED, "Complete"), (FAILED, "Failed")])
async def test_a_workload_is_built_in_place_of_the_jobset_and_its_end_is_that_of_the_trainjob(
    plugin: Any, end: JsonObject, expected: str
) -> None:
    world = await begun(plugin)
    built = [obj["kind"] for obj in world.applied]
    assert "JobSet" not in built
    assert kind_of(plugin) in built
    await run(world, plugin)
    assert world.find("TrainJob")["status"]["jobsStatus"][0]["active"] == 1
    await run(world, plugin, end)
    assert {name: each["reason"] for name, each in world.conditions.items()} == {expected: end["reason"]}
    assert await world.reconcile() == DONE
    assert not world.deleted


@each_workload
async def test_a_workload_is_deleted_when_its_trainjob_exceeds_its_deadline(plugin: Any) -> None:
    world = await begun(plugin, activeDeadlineSeconds=60)
    await world.reconcile_after(60)
    assert [name for name, _ in world.deleted] == [NAME]
    assert f"delete {kind_of(plugin)}" in world.requests
    assert world.conditions["Failed"]["reason"] == "DeadlineExceeded"


@pytest.mark.defect("B29")
@each_workload
async def test_a_running_workload_is_stopped_even_if_all_of_it_is_refused(plugin: Any) -> None:
    world = await begun(plugin)
    await run(world, plugin)
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": True})
    world.refusal = Invalid(status=422, reason="Invalid", message="field is immutable")
    await world.reconcile()
    assert f"patch {kind_of(plugin)}" in world.requests
    assert world.find(kind_of(plugin), NAME)["spec"]["suspend"] is True


@each_workload
async def test_a_suspended_workload_is_resumed(plugin: Any) -> None:
    world = await begun(plugin, suspend=True)
    assert world.find(kind_of(plugin), NAME)["spec"]["suspend"] is True
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": False})
    await world.reconcile()
    assert world.find(kind_of(plugin), NAME)["spec"]["suspend"] is False


@pytest.mark.defect("B27")
@each_workload
@pytest.mark.parametrize("unseen", [False, True])
async def test_a_workload_that_had_ended_when_it_was_deleted_ends_the_job_by_the_word_of_its_plugin(
    plugin: Any, unseen: bool
) -> None:
    world = await begun(plugin)
    await run(world, plugin)
    world.applied.clear()
    world.change(kind_of(plugin), name=NAME, status={"conditions": [COMPLETED]})
    world.remove(kind_of(plugin), NAME, unseen=unseen)
    assert await world.reconcile() == DONE
    assert world.conditions["Complete"]["reason"] == "CompletionsReached"
    assert world.applied == []


async def test_a_trainjob_that_has_a_workload_gets_no_second_one_by_other_plugins() -> None:
    """Somebody installed a plugin, or switched one off, while it ran: both would train."""
    world = World(indexed_job(always=True))
    world.put(trainjob_object(), runtime_object(), jobset_of("uid-1"))
    await world.reconcile()
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap"]
    assert world.conditions["Blocked"]["reason"] == "OtherWorkload"
    text = world.conditions["Blocked"]["message"]
    assert 'has the JobSet "demo", but by the plugins of today it becomes the Job "demo-node-0"' in text
    assert "delete this TrainJob and create it again" in text
    world.change("JobSet", status={"conditions": [{"type": "Completed", "status": "True", "reason": "Done"}]})
    await world.reconcile()
    assert world.conditions.keys() == {"Complete"}


async def test_a_trainjob_waits_for_the_kind_of_its_workload_and_for_no_other() -> None:
    world = World(*PLUGINS)
    world.stores["workers.example/v1", "WorkerSet"].set_served(False)
    world.put(trainjob_object(), runtime_object())
    await world.reconcile()
    assert world.conditions == {}
    waiting = World(*PLUGINS)
    waiting.stores["workers.example/v1", "WorkerSet"].set_served(False)
    waiting.put(trainjob_object(), asking_for(WorkerSet()))
    assert await waiting.reconcile() == DONE, "its appearance is an event"
    assert waiting.conditions["Blocked"]["reason"] == "KindNotServed"
    assert "which the plugin worker-set needs" in waiting.conditions["Blocked"]["message"]
    assert [obj["kind"] for obj in waiting.applied] == ["ConfigMap"], "its runtime is frozen all the same"
    waiting.stores["workers.example/v1", "WorkerSet"].set_served(True)
    await waiting.reconcile()
    assert waiting.conditions == {}
    assert waiting.applied[-1]["kind"] == "WorkerSet"


@pytest.mark.guarantee("E-5")
async def test_what_another_namespace_says_of_its_owner_makes_it_no_workload() -> None:
    """Anybody may write any UID into what is theirs: it neither ends the TrainJob nor goes with it."""
    world = await begun(indexed_job(), activeDeadlineSeconds=600)
    workload = world.find("Job", NAME)
    foreign = {**workload, "metadata": {**workload["metadata"], "namespace": "other", "name": "aaa", "uid": "foreign"}}
    world.remove("Job", NAME)
    world.put({**foreign, "status": {"conditions": [COMPLETED]}})
    world.applied.clear()
    await world.reconcile()
    assert world.conditions == {}
    assert [obj["metadata"]["name"] for obj in world.applied] == [NAME]
    await world.reconcile_after(600)
    assert [name for name, _ in world.deleted] == [NAME]
