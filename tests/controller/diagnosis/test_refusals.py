"""JobSets whose Jobs are refused: when the events are asked for, what is made of them, and when that is over."""

from typing import Any

import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.world import KEY, World

from trainmaster.controller.diagnosis.counts import without_jobs
from trainmaster.controller.diagnosis.diagnosis import FIRST_LOOK_FOR_JOBS as FIRST_LOOK
from trainmaster.controller.diagnosis.diagnosis import LONGEST_INTERVAL
from trainmaster.controller.kube.rest.errors import Forbidden
from trainmaster.controller.reconciling.outcomes import DONE, Outcome, RequeueAfter
from trainmaster.runtime.jsontree import JsonObject

REFUSAL = 'Job.batch "demo-node-0" is invalid: spec.template.spec.containers[0].image: Required value'
LIST = "list Event involvedObject.uid={},reason=JobCreationFailed"


def event(message: str = REFUSAL, *, at: str = "2026-01-01T00:00:00Z", **fields: Any) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "team", "creationTimestamp": "2025-12-31T00:00:00Z"},
        "reason": "JobCreationFailed",
        "message": message,
        "lastTimestamp": at,
        **fields,
    }


def world_without_image(*jobs: JsonObject) -> World:
    world = World()
    imageless = replicated_job(containers=[{"name": "node"}])
    world.put(trainjob_object(), runtime_object(*(jobs or (imageless,))))
    return world


async def world_without_image_that_waits() -> World:
    world = world_without_image()
    await world.reconcile()
    await world.reconcile()
    return world


async def looked(world: World, *, after: float = FIRST_LOOK) -> Outcome:
    """What a reconcile says once it is time for a look."""
    await world.clock.advance(after)
    return await world.reconcile()


def listed(world: World) -> int:
    return sum(request.startswith("list Event") for request in world.requests)


async def test_a_job_without_an_image_that_is_refused_blocks_the_trainjob_until_it_is_there() -> None:
    world = world_without_image()
    await world.reconcile()
    assert await world.reconcile() == RequeueAfter(FIRST_LOOK)
    assert "Blocked" not in world.conditions
    world.cluster_events.append(event())
    await looked(world)
    assert world.requests[-2:] == [LIST.format(world.find("JobSet")["metadata"]["uid"]), "patch status"]
    blocked = world.conditions["Blocked"]
    assert blocked["reason"] == "JobCreationFailed"
    assert blocked["message"] == f'the Jobs of JobSet "demo" are refused: {REFUSAL}'
    assert world.events == [f"TrainJob resources reconciliation failed: {blocked['message']}"]

    world.change("JobSet", status={"replicatedJobsStatus": [{"name": "node", "active": 1, "ready": 1}]})
    assert await world.reconcile() == DONE
    assert "Blocked" not in world.conditions


async def test_a_job_without_an_image_that_gets_one_costs_no_request() -> None:
    """An admission plugin filled it in."""
    world = world_without_image()
    await world.reconcile()
    await world.reconcile()
    world.change("JobSet", status={"replicatedJobsStatus": [{"name": "node", "ready": 1}]})
    await looked(world)
    assert await looked(world) == DONE
    assert listed(world) == 0


async def test_a_complete_jobset_is_not_asked_about() -> None:
    world = world_without_image(replicated_job())
    await world.reconcile()
    assert await world.reconcile() == DONE
    assert await looked(world) == DONE
    assert listed(world) == 0


async def test_looks_become_rare() -> None:
    world = world_without_image()
    await world.reconcile()
    await world.reconcile()
    waits: list[float] = []
    wait = FIRST_LOOK
    for _ in range(9):
        outcome = await looked(world, after=wait)
        assert isinstance(outcome, RequeueAfter)
        wait = outcome.seconds
        waits.append(wait)
    assert waits == sorted(waits)
    assert waits[0] == 2 * FIRST_LOOK
    assert waits[-1] == LONGEST_INTERVAL
    assert listed(world) == len(waits)


async def test_looks_of_many_trainjobs_are_spread() -> None:
    world = await world_without_image_that_waits()
    keys = [f"team/j{number}" for number in range(100)]
    for key in keys:
        world.show_as(key, "TrainJob")
        world.diagnosis.refusal(key, world.show_as(key, "JobSet"))
    world.diagnosis.forget(KEY)
    assert {world.diagnosis.next_due(key) for key in keys} == {world.clock.monotonic() + FIRST_LOOK}
    await world.clock.advance(FIRST_LOOK)
    await world.diagnose()
    assert listed(world) == 1
    turns = [due for key in keys[1:] if (due := world.diagnosis.next_due(key)) is not None]
    assert turns == sorted(set(turns))
    assert turns[-1] - world.clock.monotonic() > 15
    await world.clock.advance(turns[-1] - world.clock.monotonic())
    await world.diagnose()
    assert listed(world) == len(keys)  # the first is due again, and comes last


@pytest.mark.parametrize(
    "irrelevant",
    [
        event('Job.batch "demo-first-0" is invalid: spec.template: Required value'),
        event(at="2025-12-31T23:00:00Z"),
        event(at=None, series={"lastObservedTime": "2025-12-31T23:00:00.000000Z"}),  # type: ignore[arg-type]
        event(at="no time"),
    ],
    ids=["of a job that is there", "old", "old series", "of no time"],
)
async def test_events_that_say_nothing_about_now_are_left_out(irrelevant: JsonObject) -> None:
    """JobSet's controller repeats the event as long as it is refused; an old one may have been about anything."""
    first = replicated_job("first", ancestor=None)
    world = world_without_image(first, replicated_job(containers=[{"name": "node"}]))
    await world.reconcile()
    world.change("JobSet", status={"replicatedJobsStatus": [{"name": "first", "succeeded": 1}]})
    await world.reconcile()
    world.cluster_events.append(irrelevant)
    await looked(world)
    assert listed(world) == 1
    assert "Blocked" not in world.conditions
    world.cluster_events.append(event(at=None, eventTime="2026-01-01T00:00:05.000000Z"))  # type: ignore[arg-type]
    await looked(world, after=2 * FIRST_LOOK)
    assert world.conditions["Blocked"]["reason"] == "JobCreationFailed"


async def test_who_may_not_read_events_goes_on() -> None:
    world = world_without_image()
    world.unreadable_events = Forbidden(status=403, reason="Forbidden", message="events is forbidden")
    await world.reconcile()
    await world.reconcile()
    assert isinstance(await looked(world), RequeueAfter)
    assert listed(world) == 1
    assert "Blocked" not in world.conditions


async def test_what_is_known_stays_while_events_cannot_be_read_until_the_jobset_is_made_anew() -> None:
    world = world_without_image()
    await world.reconcile()
    await world.reconcile()
    world.cluster_events.append(event())
    await looked(world)
    world.unreadable_events = Forbidden(status=403, reason="Forbidden", message="events is forbidden")
    await looked(world, after=2 * FIRST_LOOK)
    assert listed(world) == 2
    assert world.conditions["Blocked"]["reason"] == "JobCreationFailed"
    world.unreadable_events = None
    world.remove("JobSet")
    world.cluster_events.clear()
    await world.reconcile()
    await world.reconcile()
    assert "Blocked" not in world.conditions


def test_replicated_jobs_are_without_jobs_until_one_is_counted() -> None:
    spec = {"replicatedJobs": [{"name": "a"}, {"name": "b"}]}
    zeros = {"name": "a", "active": 0, "ready": 0}
    assert without_jobs({"spec": spec}) == {"a", "b"}
    assert without_jobs({"spec": spec, "status": {"replicatedJobsStatus": [zeros, {"name": "b", "suspended": 1}]}}) == {
        "a"
    }
    ended = {"conditions": [{"type": "Failed", "status": "True"}]}
    assert without_jobs({"spec": spec, "status": ended}) == set()
    odd = {"conditions": ["Failed"], "replicatedJobsStatus": ["a", {"name": 1}, {"active": 1}]}
    assert without_jobs({"spec": spec, "status": odd}) == {"a", "b"}
    assert [without_jobs({"spec": each}) for each in ("odd", {"replicatedJobs": ["a", {}]})] == [set(), set()]
