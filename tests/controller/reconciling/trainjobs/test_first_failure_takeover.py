"""What another process tells of failures when it takes over: it knows the status of a TrainJob and its pods alone."""

from __future__ import annotations

from support.failing_pods import container_status, pod, terminated
from support.failing_worlds import FAILED, NAN, TOLD, FailingWorld, failing

from trainmaster.controller.reconciling.outcomes import DONE
from trainmaster.controller.reconciling.trainjobs.first_failure_reporter import FIRST_LOOK


async def test_another_process_tells_nothing_again_and_forgets_nothing() -> None:
    world = await FailingWorld.failed()
    world.restart()
    await world.reconcile()
    assert (world.told, world.events) == ([TOLD], [TOLD])
    await world.clock.advance(FIRST_LOOK)
    await world.reconcile()
    assert (world.told, world.events, world.reads) == ([TOLD], [TOLD], 2)
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"].endswith(TOLD)
    assert world.events == [TOLD]


async def test_another_process_removes_the_condition_when_all_is_ready_again() -> None:
    world = await FailingWorld.failed()
    world.restart()
    await world.report(active=1, ready=1)
    assert world.conditions == {}


async def test_what_was_overcome_before_another_process_took_over_is_not_told_again() -> None:
    """That it was told, and removed when all was ready, the status does not say any more."""
    world = await FailingWorld.failed()
    await world.report(active=1, ready=1)
    await world.clock.advance(20)
    world.restart()
    both = container_status(terminated(1, at=40, message=NAN), last=terminated(1, at=5, message=NAN), restarts=1)
    old = pod(1, terminated(1, at=5), suffix="old", created=0)
    new = pod(1, terminated(1, at=41), suffix="new", created=15)
    world.show_pods(pod(0, containers=[both]), old, new, pod(2, terminated(1, at=45)))
    await world.report(active=1)
    assert [line.partition(" (")[0] for line in world.told] == ["attempt 0, restart 1: rank 0", "attempt 0: rank 2"]
    assert len(world.events) == 3


async def test_attempts_before_the_last_restart_of_the_jobset_are_over_for_another_process() -> None:
    world = await FailingWorld.running()
    await world.report(active=1, ready=1, restarts=1)
    await world.clock.advance(20)
    world.restart()
    world.show_pods(pod(0, terminated(1, at=5)), failing(at=40, attempt=1))
    await world.report(active=1, restarts=1)
    assert [line.partition(" (")[0] for line in world.told] == ["attempt 1: rank 1"]


async def test_a_healthy_job_costs_no_request_after_another_process_took_over() -> None:
    world = await FailingWorld.running()
    world.restart()
    assert await world.reconcile() == DONE
    assert world.reads == 0
