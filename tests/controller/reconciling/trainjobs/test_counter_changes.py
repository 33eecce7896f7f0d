"""Counts of pods: one reconcile a second however many events tell of them, and none of what else happens waits."""

from collections.abc import Mapping
from typing import Any

import pytest
from support.plugins import Counting
from support.world import JOBSET_COMPLETED, World, guarded_world, jobset_of, world_with

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.reconciling.status_writer import COUNTERS_INTERVAL
from trainmaster.controller.reconciling.trainjobs.event_handlers import only_counters_change
from trainmaster.runtime.jsontree import JsonObject


def counting(**counts: int) -> JsonObject:
    return {"replicatedJobsStatus": [{"name": "node", **counts}]}


async def built() -> World:
    """A TrainJob whose JobSet is built, and has reported that it has Jobs."""
    world = world_with()
    await world.work()
    world.requests.clear()
    return world


def counts_in(status: Mapping[str, Any]) -> int:
    (node,) = status["jobsStatus"]
    return int(node["ready"])


async def test_pods_that_come_up_one_by_one_are_one_reconcile_a_second() -> None:
    world = await built()
    for pods in range(1, 9):
        world.change("JobSet", status=counting(active=8, ready=pods))
        assert await world.work() == 0
        await world.clock.advance(COUNTERS_INTERVAL / 10)
    await world.clock.advance(COUNTERS_INTERVAL)
    assert await world.work() == 1
    assert world.requests == ["patch status"]
    assert counts_in(world.find("TrainJob")["status"]) == 8
    await world.clock.advance(3600)
    assert await world.work() == 0


async def test_what_waits_is_written_with_the_end_of_the_job_and_then_no_more() -> None:
    world = await built()
    world.change("JobSet", status=counting(active=1, ready=1))
    assert await world.work() == 0
    world.change("JobSet", status=JOBSET_COMPLETED)
    assert await world.work() == 1
    assert world.conditions["Complete"]["status"] == "True"
    await world.clock.advance(3600)
    assert await world.work() == 0
    assert world.requests == ["patch status"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (counting(active=2, ready=2), counting(active=2, ready=1)),
        (counting(active=2, ready=2), counting(active=1, ready=1, failed=1)),
        (counting(active=2, ready=2), {"replicatedJobsStatus": []}),
        (counting(active=2, ready=2), {**counting(active=2, ready=2), "restarts": 1}),
        (
            counting(active=2, ready=2),
            {**counting(), "conditions": [{"type": "Suspended", "status": "True", "reason": "", "message": ""}]},
        ),
    ],
    ids=["a-pod-is-gone", "a-job-has-failed", "no-jobs", "a-restart", "a-condition"],
)
async def test_what_is_more_than_counting_waits_for_nothing(before: JsonObject, after: JsonObject) -> None:
    world = await built()
    world.change("JobSet", status=before)
    assert await world.work() == 0
    world.change("JobSet", status=after)
    reconciled = await world.work()
    assert reconciled == 1 + sum(request.startswith("list Pod") for request in world.requests)  # a finding asks as well


async def test_a_change_of_the_jobset_itself_waits_for_nothing() -> None:
    world = await built()
    world.change("JobSet", status=counting(active=1))
    assert await world.work() == 0
    jobset = world.find("JobSet")
    jobset["metadata"]["labels"] = {**jobset["metadata"].get("labels", {}), "example.com/team": "vision"}
    jobset["status"] = counting(active=1, ready=1)
    world.store(jobset)
    assert await world.work() == 1


async def test_a_change_of_the_trainjob_waits_for_no_counters() -> None:
    world = await built()
    world.change("JobSet", status=counting(active=1, ready=1))
    assert await world.work() == 0
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": True})
    assert await world.work() >= 1
    assert world.find("JobSet")["spec"]["suspend"] is True


async def test_nothing_waits_where_a_plugin_of_others_may_read_counts() -> None:
    with guarded_world(Counting()) as world:
        await world.work()
        world.change("JobSet", status=counting(active=1, ready=1))
        assert await world.work() == 1


@pytest.mark.parametrize(
    "status",
    [
        1.5,
        "odd",
        [1],
        {"replicatedJobsStatus": 7},
        {"replicatedJobsStatus": [None, {}]},
        counting(active="many"),  # type: ignore[arg-type]
    ],
)
def test_an_odd_status_waits_for_nothing(status: Any) -> None:
    store = Store()
    jobset = {**jobset_of("uid-1"), "status": counting(active=1)}
    store.put(jobset)
    assert not only_counters_change(store.put({**jobset, "status": status}))
    assert not only_counters_change(store.put(jobset))
