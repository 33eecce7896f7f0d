"""When the pods of a TrainJob are read for failures, how many of them, and what if they cannot be read."""

import asyncio
from typing import Any

import pytest
import structlog
from support.failing_pods import COMPLETED, FAILED, TOLD, FailingWorld, failing, pod

from trainmaster.controller.diagnosis.diagnosis import BURST, FIRST_LOOK, HELD, INTERVAL, LONGEST_INTERVAL
from trainmaster.controller.diagnosis.reading import MOST_PODS, PAGE, TIME_LIMIT
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, ServerError
from trainmaster.controller.reconciling.outcomes import DONE, RequeueAfter
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject


async def test_a_healthy_life_costs_no_request_for_pods(world: FailingWorld) -> None:
    await world.report(active=1, ready=1)
    await world.report(active=0, ready=1)
    await world.report(COMPLETED, succeeded=1)
    assert await world.reconcile() == DONE
    assert world.reads == 0
    assert world.conditions.keys() == {"Complete"}


async def test_a_crash_loop_is_not_a_loop_of_requests(world: FailingWorld) -> None:
    for second in range(120):
        world.show_pods(pod(0), failing(run=second, at=second % 60))
        await world.report(active=1)
        await world.report(active=1, ready=1)
        await world.clock.advance(1)
    assert world.reads <= BURST + 120 / INTERVAL + 1
    assert len(world.told) <= 5


async def test_when_the_job_has_failed_its_pods_are_read_however_often_they_were_before(world: FailingWorld) -> None:
    world.pods = []
    for _ in range(2 * BURST):
        await world.report(active=1)
        await world.report(active=1, ready=1)
    assert world.reads == BURST
    world.show_pods(pod(0), failing())
    await world.report(FAILED, failed=1)
    assert world.reads == BURST + 1
    assert world.told == [TOLD]


async def test_pods_that_do_not_get_ready_are_looked_at_less_and_less_often() -> None:
    """A container that fails at once is never ready, so that no status of a JobSet tells of it."""
    world = await FailingWorld.starting()
    world.show_pods(pod(0), failing())
    outcome = await world.report(active=1)
    waits = []
    for _ in range(9):
        await world.clock.advance(outcome.seconds if isinstance(outcome, RequeueAfter) else 0)
        before = world.reads
        outcome = await world.reconcile()
        assert isinstance(outcome, RequeueAfter)
        if world.reads > before:
            waits.append(outcome.seconds)
    assert world.told == [TOLD]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (2 * FIRST_LOOK, LONGEST_INTERVAL)


async def test_looks_at_pods_of_many_trainjobs_are_spread() -> None:
    world = await FailingWorld.starting()
    world.change("JobSet", status={"replicatedJobsStatus": [{"name": "node", "active": 1}]})
    keys = [f"team/j{number}" for number in range(100)]
    for key in keys:
        trainjob, jobset = (world.show_as(key, kind) for kind in ("TrainJob", "JobSet"))
        world.diagnosis.observe(key, trainjob, jobset, StatusReport())
    await world.clock.advance(FIRST_LOOK)
    await world.diagnose()
    assert world.reads == 1
    turns = [due for key in keys[1:] if (due := world.diagnosis.next_due(key)) is not None]
    assert turns == sorted(set(turns))
    assert len(turns) == 99
    for turn in turns:
        await world.clock.advance(turn - world.clock.monotonic())
        await world.diagnose()
    assert world.reads == len(keys)


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden(status=403, reason="Forbidden", message="pods is forbidden"),
        ServerError(status=500, reason="InternalError", message="no"),
    ],
)
async def test_who_cannot_read_pods_goes_on(world: FailingWorld, refusal: KubeError) -> None:
    world.unreadable_pods = refusal
    await world.report(active=1)
    assert (world.reads, world.conditions) == (1, {})
    await world.report(FAILED, failed=1)
    await world.clock.advance(HELD)
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == FAILED["message"]


async def test_a_right_that_is_missing_is_logged_by_whoever_tells_of_rights_alone(world: FailingWorld) -> None:
    refusal = Forbidden(status=403, reason="Forbidden", message="pods is forbidden")
    refusal.told = True
    world.unreadable_pods = refusal
    with structlog.testing.capture_logs() as logs:
        await world.report(active=1)
    assert [entry["log_level"] for entry in logs if "could not be read" in entry["event"]] == ["debug"]


async def test_a_server_that_does_not_answer_holds_nobody_up(world: FailingWorld) -> None:
    never = asyncio.Event()
    refused = world.list

    async def hang(*arguments: Any, **options: Any) -> JsonObject:
        await never.wait()
        return await refused(*arguments, **options)

    world.list = hang  # type: ignore[method-assign]
    reconciling = asyncio.create_task(world.report(FAILED, failed=1))
    await asyncio.sleep(0)
    await world.clock.advance(TIME_LIMIT)
    await reconciling
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == FAILED["message"]


async def test_two_hundred_pods_that_fail_at_once_are_one_event(world: FailingWorld) -> None:
    lost = [failing(rank, at=6, message="Connection reset by peer") for rank in range(200)]
    lost[137] = failing(137, at=6, message="ValueError: my loss is NaN")
    world.show_pods(*lost)
    await world.report(active=1)
    assert world.reads == 200 / PAGE
    assert len(world.events) == 1
    assert "rank 137 " in world.told[0]


async def test_of_many_pods_only_so_many_are_read(world: FailingWorld) -> None:
    world.show_pods(*(failing(rank) for rank in range(MOST_PODS + 500)))
    await world.report(active=1)
    assert world.reads == MOST_PODS / PAGE
    assert len(world.told) == 1
