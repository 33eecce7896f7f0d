"""Workloads that are gone: a TrainJob that has trained does not train again (B27)."""

from typing import Any

import pytest
from support.objects import runtime_object, trainjob_object
from support.world import KEY, World

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.reconciling.outcomes import DONE
from trainmaster.controller.reconciling.trainjobs.observe import DeletedWorkloads
from trainmaster.runtime.jsontree import JsonObject

ACTIVE = {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
ENDED = {**ACTIVE, "ready": 0, "active": 0, "succeeded": 1}
COMPLETED = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": "done"}
FAILED = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "one failed"}


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
@pytest.mark.parametrize(("end", "expected"), [(COMPLETED, "Complete"), (FAILED, "Failed")])
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
    world.change("JobSet", status={"conditions": [COMPLETED], "replicatedJobsStatus": [ENDED]})
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
    world.change("JobSet", status={"conditions": [COMPLETED]})
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
