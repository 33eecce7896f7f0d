"""Workloads that are no JobSets, and those that are gone: a TrainJob that has trained does not train again (B27)."""

from __future__ import annotations

from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.plugins import WorkerSet, choosing, indexed_job
from support.world import KEY, World, jobset_of

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.errors import Invalid
from trainmaster.controller.reconciling.outcomes import DONE
from trainmaster.controller.reconciling.trainjobs.observe import DeletedWorkloads
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


ACTIVE = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
ENDED = {**ACTIVE, "ready": 0, "active": 0, "succeeded": 1}
JOBSET_COMPLETED = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}
JOBSET_FAILED = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "one failed"}


async def trained(*, ttl: int | None = 0, **spec: Any) -> World:
    """A world in which the TrainJob has run, and its status says so."""
    world = World()
    template: dict[str, Any] = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    world.put(trainjob_object(**spec), runtime_object(**template))
    await world.reconcile()
    world.change("JobSet", status={"replicatedJobsStatus": [ACTIVE]})
    world.change("TrainJob", status={"jobsStatus": [ACTIVE]})
    world.applied.clear()
    return world


@pytest.mark.defect("B27")
@pytest.mark.parametrize(("end", "expected"), [(JOBSET_COMPLETED, "Complete"), (JOBSET_FAILED, "Failed")])
@pytest.mark.parametrize("unseen", [False, True])
async def test_a_workload_that_had_ended_when_it_was_deleted_ends_the_job(
    end: JsonObject, expected: str, unseen: bool
) -> None:
    """Also without a time to live: somebody who cleans up by hand does not start the training again."""
    world = await trained(ttl=None)
    world.change("JobSet", status={"conditions": [end], "replicatedJobsStatus": [ENDED]})
    world.remove("JobSet", unseen=unseen)
    assert await world.reconcile() == DONE
    assert world.conditions.keys() == {expected}
    assert world.conditions[expected]["reason"] == end["reason"]
    assert world.find("TrainJob")["status"]["jobsStatus"] == [ENDED]
    assert world.applied == []


@pytest.mark.defect("B27")
async def test_an_end_comes_before_a_deadline_that_passed_since() -> None:
    world = await trained(activeDeadlineSeconds=60)
    world.change("JobSet", status={"conditions": [JOBSET_COMPLETED], "replicatedJobsStatus": [ENDED]})
    world.remove("JobSet")
    await world.reconcile_after(10 * 365 * 86_400)
    assert world.conditions.keys() == {"Complete"}


@pytest.mark.defect("B27")
async def test_a_running_workload_that_somebody_deleted_is_made_again() -> None:
    """Upstream does so too; the deletion was seen, so it is certain that there was no end."""
    world = await trained()
    world.remove("JobSet")
    await world.reconcile()
    assert [obj["kind"] for obj in world.applied] == ["JobSet"]
    assert world.conditions == {}


@pytest.mark.defect("B27")
async def test_a_workload_that_may_have_ended_unseen_is_not_made_again() -> None:
    """The manager was away for longer than the time to live."""
    world = await trained()
    world.remove("JobSet")
    world.restart()
    assert await world.reconcile() == DONE
    assert world.applied == []
    blocked = world.conditions["Blocked"]
    assert blocked["reason"] == "WorkloadGone"
    assert "ttlSecondsAfterFinished (0)" in blocked["message"]
    assert "delete this TrainJob and create it again" in blocked["message"]
    assert len(world.events) == 1
    assert world.find("TrainJob")["status"]["jobsStatus"] == [ACTIVE]


@pytest.mark.defect("B27")
async def test_a_workload_that_vanished_unseen_while_it_ran_may_have_ended() -> None:
    """A new list lacks it: its last known state is older than its deletion."""
    world = await trained()
    world.remove("JobSet", unseen=True)
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "WorkloadGone"


@pytest.mark.defect("B27")
async def test_without_a_time_to_live_nothing_deletes_a_workload_that_ended() -> None:
    world = await trained(ttl=None)
    world.remove("JobSet")
    world.restart()
    await world.reconcile()
    assert [obj["kind"] for obj in world.applied] == ["JobSet"]


@pytest.mark.defect("B27")
@pytest.mark.parametrize(
    "status",
    [
        None,
        {"jobsStatus": [{**ACTIVE, "ready": 0, "active": 0}]},
        {"conditions": [{"type": "Suspended", "status": "True", "reason": "Suspended", "message": "m"}]},
    ],
    ids=["created", "nothing started", "suspended"],
)
async def test_a_job_that_did_not_run_is_built(status: JsonObject | None) -> None:
    """For instance because the manager was killed between the snapshot and the JobSet."""
    world = await trained()
    world.remove("JobSet")
    world.restart()
    world.change("TrainJob", status={"jobsStatus": [ENDED], **status} if status and "conditions" in status else status)
    await world.reconcile()
    assert [obj["kind"] for obj in world.applied] == ["JobSet"]


@pytest.mark.defect("B27")
async def test_the_end_of_an_earlier_job_of_the_name_says_nothing() -> None:
    world = await trained()
    world.change("JobSet", status={"conditions": [JOBSET_COMPLETED]})
    world.remove("JobSet")
    world.remove("ConfigMap", "demo-runtime-snapshot")
    world.put(trainjob_object(uid="uid-2"))
    await world.reconcile()
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap", "JobSet"]
    assert world.conditions == {}


@pytest.mark.defect("B27")
async def test_what_is_remembered_goes_with_the_end_of_its_job() -> None:
    """Also in a manager that only stands by, and reconciles nothing."""
    trainjobs = Store()
    deleted_workloads = DeletedWorkloads(trainjobs)
    world = await trained()
    trainjobs.put(world.find("TrainJob"))
    jobsets = Store()
    jobsets.put(world.find("JobSet"))
    deleted_workloads.on_workload_event(jobsets.delete(KEY))
    assert [each.state["metadata"]["name"] for each in deleted_workloads.last_states(KEY)] == ["demo"]
    deleted_workloads.on_trainjob_event(trainjobs.put(world.find("TrainJob")))
    assert len(deleted_workloads) == 1
    condition = {"type": "Complete", "status": "True", "reason": "r", "message": "m"}
    deleted_workloads.on_trainjob_event(trainjobs.put(trainjob_object(status={"conditions": [condition]})))
    assert len(deleted_workloads) == 0
    # A JobSet that follows its TrainJob, or outlives the end of it, is of no interest.
    jobsets.put(world.find("JobSet"))
    deleted_workloads.on_workload_event(jobsets.delete(KEY))
    assert len(deleted_workloads) == 0
