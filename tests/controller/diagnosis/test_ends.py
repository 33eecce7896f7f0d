"""The end of a TrainJob and its cause: found in time, late, twice, not at all, or by another process."""

from typing import Any

import pytest
from support.failing_pods import FAILED, NAN, TOLD, FailingWorld, failing, pod, terminated
from support.objects import runtime_object, trainjob_object
from support.world import KEY

from trainmaster.controller.diagnosis.diagnosis import HELD, INTERVAL, LATELY, PEER_READ, READING, SECOND_READ
from trainmaster.controller.kube.rest.errors import (
    Forbidden,
    KubeError,
    RequestTimeout,
    ServerError,
    StreamBroken,
    TooManyRequests,
)
from trainmaster.controller.reconciling.outcomes import DONE, Outcome, RequeueAfter
from trainmaster.runtime.jsontree import JsonObject


class UnhurriedWorld(FailingWorld):
    """One in which nothing is read before somebody says so."""

    async def reconcile(self) -> Outcome:
        return await self.reconciler.reconcile(KEY)


async def running_unhurriedly() -> UnhurriedWorld:
    world = UnhurriedWorld()
    world.put(trainjob_object(), runtime_object())
    await world.reconcile()
    world.show_pods(pod(0), pod(1))
    await world.report(active=1, ready=1)
    await world.clock.advance(2)
    await world.reconcile()
    return world


async def failed_unhurriedly() -> UnhurriedWorld:
    world = await running_unhurriedly()
    world.show_pods(pod(0), failing())
    assert await world.report(FAILED, failed=1) == RequeueAfter(HELD)
    assert world.conditions == {}
    return world


async def test_a_finding_that_comes_late_completes_the_end_once() -> None:
    world = await failed_unhurriedly()
    await world.clock.advance(HELD)
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == FAILED["message"]
    await world.diagnose()
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == f"{FAILED['message']}; {TOLD}"
    assert world.told == world.events == [TOLD]
    written = len(world.patches)
    assert not await world.diagnose()
    assert await world.reconcile() == DONE
    assert len(world.patches) == written
    assert world.diagnosis._jobs == {}


async def test_a_finding_that_comes_while_the_end_is_written_completes_it() -> None:
    world = await failed_unhurriedly()
    await world.clock.advance(HELD)
    write = world.patch_status

    async def takes_time(*arguments: Any, **options: Any) -> tuple[JsonObject, str]:
        answer = await write(*arguments, **options)
        world.patch_status = write  # type: ignore[method-assign]
        await world.diagnose()
        return answer

    world.patch_status = takes_time  # type: ignore[method-assign]
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == FAILED["message"]
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == f"{FAILED['message']}; {TOLD}"
    assert world.diagnosis._jobs == {}


LOST = failing(0, message="RuntimeError: Connection closed by peer", phase="Failed")
ALIVE = pod(1, phase="Running")
OVER = pod(1, terminated(0), phase="Succeeded")
BUG = pod(1, terminated(message=NAN, at=6), phase="Failed")
IS_LOST = (
    "rank 0 (pod demo-node-0-0-abcde, container node) failed at 2026-01-01T00:00:05Z with exit code 1 (it lost another "
    "rank): RuntimeError: Connection closed by peer"
)


@pytest.mark.parametrize(
    ("later", "told"),
    [
        pytest.param(BUG, TOLD.replace(":05Z", ":06Z"), id="it fails"),
        pytest.param(OVER, f"attempt 0: rank 1 ended first, with exit code 0; {IS_LOST}", id="it is done"),
        pytest.param(ALIVE, f"attempt 0: {IS_LOST}", id="it goes on"),
    ],
)
async def test_a_rank_that_was_lost_has_time_to_say_why(later: JsonObject, told: str) -> None:
    """The node of the other one may tell its end first: the pod of the lost one is there a moment longer."""
    world = await running_unhurriedly()
    world.show_pods(LOST, ALIVE)
    assert await world.report(FAILED, failed=1) == RequeueAfter(HELD)
    await world.diagnose()
    assert isinstance(await world.reconcile(), RequeueAfter)
    assert world.conditions == {}
    world.show_pods(LOST, later)
    await world.clock.advance(PEER_READ if later is not ALIVE else HELD)
    await world.diagnose()
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == f"{FAILED['message']}; {told}"
    assert world.told == [told]
    assert world.diagnosis._jobs == {}


async def test_a_finding_that_comes_twice_changes_nothing() -> None:
    world = await FailingWorld.failed()
    written = len(world.patches)
    world.diagnosis.on_finding(KEY)
    world.diagnosis.on_finding(KEY)
    await world.reconcile()
    await world.clock.advance(SECOND_READ)
    await world.reconcile()
    assert world.reads == 2
    assert world.told == world.events == [TOLD]
    assert len(world.patches) == written


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("moment", ["before", "meanwhile"])
async def test_what_is_found_of_a_job_is_told_of_no_other(moment: str, is_made_again: bool) -> None:
    """Its JobSet is still there, and nobody has reconciled it since."""
    world = await failed_unhurriedly()
    read = world.list

    def replace() -> None:
        world.remove("TrainJob")
        if is_made_again:
            world.store(trainjob_object(uid="another"))

    async def replaced_meanwhile(*arguments: Any, **options: Any) -> JsonObject:
        found = await read(*arguments, **options)
        replace()
        return found

    if moment == "before":
        replace()
    else:
        world.list = replaced_meanwhile  # type: ignore[method-assign]
    assert not await world.diagnose()
    assert world.events == []
    assert world.diagnosis._jobs == {}


async def test_pods_that_were_read_while_the_job_failed_are_read_once_more() -> None:
    world = await running_unhurriedly()
    read = world.list

    async def fails_meanwhile(*arguments: Any, **options: Any) -> JsonObject:
        found = await read(*arguments, **options)
        if world.reads == 1:
            world.show_pods(pod(0), failing())
            assert await world.report(FAILED, failed=1) == RequeueAfter(HELD)
        return found

    world.list = fails_meanwhile  # type: ignore[method-assign]
    await world.report(active=1)
    await world.diagnose()
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == f"{FAILED['message']}; {TOLD}"


async def test_nothing_is_kept_of_an_ended_job_whose_pods_cannot_be_read_any_more() -> None:
    world = await failed_unhurriedly()
    await world.clock.advance(HELD)
    await world.reconcile()
    world.remove("JobSet")
    await world.diagnose()
    assert world.diagnosis._jobs == {}


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_what_is_found_of_a_job_that_is_gone_is_dropped(is_made_again: bool) -> None:
    world = await failed_unhurriedly()
    read = world.list

    async def gone_meanwhile(*arguments: Any, **options: Any) -> JsonObject:
        found = await read(*arguments, **options)
        world.remove("TrainJob")
        world.remove("JobSet")
        world.remove("ConfigMap", "demo-runtime-snapshot")
        await world.reconcile()
        if is_made_again:
            world.put(trainjob_object(uid="another"))
            await world.reconcile()
            await world.report(active=1, ready=1)
        return found

    world.list = gone_meanwhile  # type: ignore[method-assign]
    assert not await world.diagnose()
    assert world.events == []
    assert not is_made_again or world.conditions == {}


async def test_pods_that_cannot_be_read_are_not_asked_for_again_and_again(world: FailingWorld) -> None:
    world.unreadable_pods = ServerError(status=500)
    await world.report(active=1, ready=1, restarts=1)
    for _ in range(60):
        await world.clock.advance(INTERVAL)
        await world.reconcile()
    assert world.reads <= 12
    reads = world.reads
    await world.clock.advance(INTERVAL)
    await world.reconcile()
    assert world.reads == reads


# Pods that the server does not show for a while.


TRANSIENT = [
    ServerError(status=503),
    TooManyRequests(status=429),
    StreamBroken("connection lost"),
    RequestTimeout("no answer"),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("has_ended", [True, False])
async def test_an_error_of_the_server_delays_the_cause_and_does_not_lose_it(error: KubeError, has_ended: bool) -> None:
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    world.unreadable_pods = error
    await world.report(*([FAILED] if has_ended else []), failed=1)
    for _ in range(5):
        await world.clock.advance(HELD)
        await world.reconcile()
    assert world.told == []
    world.unreadable_pods = None
    await world.clock.advance(5 * HELD)
    await world.reconcile()
    assert world.told == world.events == [TOLD]
    written = len(world.patches)
    await world.clock.advance(READING)
    await world.reconcile()
    assert len(world.patches) == written
    if has_ended:
        assert world.conditions["Failed"]["message"] == f"{FAILED['message']}; {TOLD}"
        assert world.diagnosis._jobs == {}


async def test_a_cause_that_cannot_be_read_for_minutes_is_told_to_be_unknown(world: FailingWorld) -> None:
    world.unreadable_pods = ServerError(status=503, reason="ServiceUnavailable", message="etcd has no leader")
    await world.report(FAILED, failed=1)
    for _ in range(int(READING / INTERVAL) + 1):
        await world.clock.advance(INTERVAL)
        await world.reconcile()
    assert world.conditions["Failed"]["message"] == (
        f"{FAILED['message']}; which container failed first is not known: the pods could not be read for 4 minutes "
        "(503 ServiceUnavailable: etcd has no leader); look at those that are left and at their logs"
    )
    assert world.conditions.keys() == {"Failed"}
    assert len(world.patches) == len({str(each) for each in world.patches})
    assert world.diagnosis._jobs == {}


async def test_who_may_not_read_pods_asks_once(world: FailingWorld) -> None:
    world.unreadable_pods = Forbidden(status=403)
    await world.report(FAILED, failed=1)
    for _ in range(int(READING / INTERVAL) + 1):
        await world.clock.advance(INTERVAL)
        await world.reconcile()
    assert world.reads == 1
    assert world.conditions["Failed"]["message"] == FAILED["message"]


# Another leader, for a job whose end was told without its cause.


async def ended_without_cause() -> FailingWorld:
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    world.unreadable_pods = ServerError(status=503)
    await world.report(FAILED, failed=1)
    await world.clock.advance(HELD)
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == FAILED["message"]
    world.unreadable_pods = None
    await world.clock.advance(HELD)
    return world


async def test_another_process_completes_an_end_that_was_told_without_its_cause() -> None:
    world = await ended_without_cause()
    world.restart()
    await world.reconcile()
    assert world.conditions["Failed"]["message"] == f"{FAILED['message']}; {TOLD}"
    assert world.told == world.events == [TOLD]
    reads, written = world.reads, len(world.patches)
    assert await world.reconcile() == DONE
    world.restart()
    assert await world.reconcile() == DONE
    assert (world.reads, len(world.patches)) == (reads, written)


async def test_another_process_asks_once_for_a_cause_of_which_no_pod_tells() -> None:
    world = await ended_without_cause()
    world.pods = []
    reads = world.reads
    world.restart()
    for _ in range(3):
        assert await world.reconcile() == DONE
    assert world.reads == reads + 1
    assert world.conditions["Failed"]["message"] == FAILED["message"]


async def test_another_process_does_not_ask_for_what_ended_long_ago() -> None:
    world = await ended_without_cause()
    reads = world.reads
    await world.clock.advance(LATELY)
    world.restart()
    assert await world.reconcile() == DONE
    assert world.reads == reads
