"""What becomes of what the pods of a TrainJob tell of their failures: condition, event, message of the end."""

import pytest
from support.failing_pods import (
    BACKING_OFF,
    FAILED,
    NAN,
    RUNNING,
    TOLD,
    FailingWorld,
    container_status,
    failing,
    pod,
    terminated,
)
from support.objects import SUSPENDED, replicated_job
from support.world import KEY

from trainmaster.controller.diagnosis.diagnosis import FIRST_LOOK, SECOND_READ
from trainmaster.controller.kube.rest.errors import ServerError
from trainmaster.controller.reconciling.outcomes import DONE
from trainmaster.runtime.jsontree import JsonObject


async def test_when_all_ranks_are_ready_again_the_condition_is_gone() -> None:
    """A TrainJob with any condition is never running for the Kubeflow SDK."""
    world = await FailingWorld.failed()
    assert "restarts" not in world.find("TrainJob")["status"]
    await world.report(active=1, ready=1)
    assert world.conditions == {}
    assert world.find("TrainJob")["status"]["restarts"] == 1
    await world.clock.advance(SECOND_READ)
    await world.reconcile()
    assert world.conditions == {}
    assert await world.report(active=1, ready=1) == DONE
    assert world.events == [TOLD]

    world.show_pods(pod(0), failing(run=1, at=30))
    await world.report(active=1)
    assert [line.partition(": ")[0] for line in world.told] == ["attempt 0", "attempt 0, restart 1"]
    assert len(world.events) == 2
    assert world.find("TrainJob")["status"]["restarts"] == 1
    await world.report(active=1, ready=1)
    assert world.find("TrainJob")["status"]["restarts"] == 2


async def test_a_cache_that_lags_behind_the_pods_overcomes_no_failure(world: FailingWorld) -> None:
    """Pods are read from the server: a JobSet of before may still become ready in the cache."""
    world.pods_version = "1000000"
    world.show_pods(pod(0), pod(1, terminated(1, at=5, message=NAN)))
    await world.report(active=1)
    await world.report(active=1, ready=1)
    assert world.told == [TOLD]
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"] == f"{FAILED['message']}; {TOLD}"
    assert "restarts" not in world.find("TrainJob")["status"]


async def test_the_message_of_the_end_has_the_first_failure_after_the_words_of_jobset(world: FailingWorld) -> None:
    world.show_pods(pod(0, terminated(143, at=5)), pod(1, terminated(1, at=5, message=NAN)))
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"] == f"{FAILED['message']}; {TOLD}"
    assert list(world.conditions) == ["Failed", "ContainerFailed"]
    assert await world.reconcile() == DONE
    assert (world.events, world.reads) == ([TOLD], 1)


async def test_without_a_failure_that_can_be_seen_the_end_is_told_as_jobset_tells_it(world: FailingWorld) -> None:
    world.pods = []
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"] == FAILED["message"]
    assert world.conditions.keys() == {"Failed"}


async def test_what_was_told_stays_when_the_job_fails_and_its_pods_are_gone() -> None:
    """With backoffLimit 3 the Job controller deletes the pod when it is restarted for the third time, so: ready."""
    world = await FailingWorld.failed()
    await world.report(active=1, ready=1)
    world.pods = []
    await world.report()
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"].endswith(TOLD)
    assert world.told == [TOLD]


async def test_a_failure_that_is_known_later_but_was_earlier_takes_its_place(world: FailingWorld) -> None:
    world.show_pods(failing(0, at=6, message="gloo: Connection closed by peer"), pod(1))
    await world.report(active=1)
    assert "rank 0" in world.told[0]
    world.show_pods(failing(0, at=6, message="gloo: Connection closed by peer"), failing(1))
    await world.clock.advance(SECOND_READ)
    await world.reconcile()
    assert world.told == [TOLD]
    assert world.reads == 2


async def test_an_initializer_that_fails_is_told_by_its_name() -> None:
    init = replicated_job("dataset-initializer", containers=[{"name": "dataset-initializer", "image": "i"}])
    world = await FailingWorld.starting(init, replicated_job())
    container = container_status(
        BACKING_OFF, last=terminated(1, message="403 Forbidden: gated"), name="dataset-initializer"
    )
    world.show_pods(pod(0, job="dataset-initializer", containers=[container]))
    for ready in (1, 0):
        counts = [{"name": "dataset-initializer", "active": 1, "ready": ready}]
        world.change("JobSet", status={"replicatedJobsStatus": counts})
        await world.reconcile()
    (line,) = world.told
    assert line.startswith("attempt 0: dataset-initializer (pod demo-dataset-initializer-0-0-abcde, container dataset-")
    assert line.endswith("403 Forbidden: gated")


async def test_a_restart_of_the_whole_jobset_is_another_attempt(world: FailingWorld) -> None:
    for attempt in range(3):
        world.show_pods(pod(0, attempt=attempt), failing(at=5 + attempt, attempt=attempt, suffix=f"a{attempt}"))
        await world.report(active=1, restarts=attempt)
        await world.report(failed=1, restarts=attempt)
        await world.report(active=1, ready=1, restarts=attempt + 1)
        await world.reconcile()
    assert [event.partition(":")[0] for event in world.events] == ["attempt 0", "attempt 1", "attempt 2"]
    assert world.reads == 3


async def test_a_restart_whose_counts_were_not_seen_is_looked_at() -> None:
    """Two states of a JobSet may come as one."""
    world = await FailingWorld.failed()
    world.show_pods(pod(0, attempt=2), failing(at=9, attempt=1, suffix="later"))
    await world.report(active=1, restarts=1)
    assert len(world.told) == 1
    await world.report(active=1, restarts=2)
    assert [line.partition(":")[0] for line in world.told] == ["attempt 0", "attempt 1"]
    assert world.reads == 2


async def test_a_pod_that_replaces_a_failed_one_is_a_restart(world: FailingWorld) -> None:
    first = pod(1, terminated(1, at=5, message=NAN), suffix="first", created=1)
    world.show_pods(pod(0), first)
    await world.report(active=1)
    await world.report(active=1, ready=1)
    world.show_pods(pod(0), pod(1, terminated(1, at=20), suffix="second", created=15), first)
    await world.report(active=1)
    assert [line.partition(": ")[0] for line in world.told] == ["attempt 0", "attempt 0, restart 1"]


@pytest.mark.parametrize(
    "of_others",
    [{"labels": {"jobset.sigs.k8s.io/jobset-name": "demo", "jobset.sigs.k8s.io/jobset-uid": "another"}},
     {"ownerReferences": [{"kind": "ReplicaSet"}]}],
)  # fmt: skip
async def test_pods_of_a_predecessor_of_the_same_name_and_of_others_say_nothing(of_others: JsonObject) -> None:
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    for each in world.pods:
        each["metadata"] |= of_others
    await world.report(active=1)
    assert (world.reads, world.told, world.events) == (1, [], [])


async def test_a_job_that_is_suspended_does_not_fail(world: FailingWorld) -> None:
    trainjob = world.find("TrainJob")
    world.store({**trainjob, "spec": {**trainjob["spec"], "suspend": True}})
    await world.reconcile()
    await world.report()
    assert world.reads == 0


async def test_a_jobset_that_was_made_anew_is_judged_anew() -> None:
    world = await FailingWorld.failed()
    world.remove("JobSet")
    await world.reconcile()
    await world.report(active=1)
    assert world.conditions == {}
    world.show_pods(pod(0), failing(suffix="later", at=50))
    await world.report()
    assert len(world.told) == 1
    assert "later" in world.told[0]


async def test_nothing_is_kept_of_a_job_that_is_fine_or_gone(world: FailingWorld) -> None:
    diagnosis = world.diagnosis
    assert (diagnosis._jobs, diagnosis._counts) == ({}, {})
    world.show_pods(pod(0), failing())
    await world.report(active=1)
    assert diagnosis._jobs.keys() == {KEY}
    await world.report(FAILED, failed=1)
    await world.reconcile()
    assert (diagnosis._jobs, diagnosis._counts) == ({}, {})


async def test_conditions_of_others_and_their_order_stay(world: FailingWorld) -> None:
    world.show_pods(pod(0), failing())
    trainjob = world.find("TrainJob")
    mine = {**SUSPENDED, "type": "Mine", "status": "False"}
    world.store({**trainjob, "status": {**trainjob["status"], "conditions": [mine]}})
    await world.report(active=1)
    assert list(world.conditions) == ["Mine", "ContainerFailed"]
    await world.report(active=1, ready=1)
    assert list(world.conditions) == ["Mine"]


async def test_a_container_that_runs_again_before_it_was_looked_at_is_told_and_no_condition() -> None:
    world = await FailingWorld.running()
    world.unreadable_pods = ServerError(status=500, reason="InternalError", message="no")
    await world.report(active=1)
    world.unreadable_pods = None
    world.show_pods(pod(0), pod(1, containers=[container_status(RUNNING, last=terminated(message=NAN), restarts=1)]))
    await world.clock.advance(SECOND_READ)
    await world.report(active=1, ready=1)
    assert world.events == [TOLD]
    assert world.conditions == {}


# Another process that takes over knows the status of a TrainJob and its pods alone.


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


@pytest.mark.parametrize("stood_by", [False, True])
async def test_what_was_overcome_before_another_process_took_over_is_not_told_again(stood_by: bool) -> None:
    """That it was told, and removed when all was ready, the status does not say any more."""
    world = await FailingWorld.failed()
    await world.report(active=1, ready=1)
    if stood_by:
        world.restart()
        await world.clock.advance(20)
        world.diagnosis.on_start()
    else:
        await world.clock.advance(20)
        world.restart()
    both = container_status(terminated(1, at=40, message=NAN), last=terminated(1, at=5, message=NAN), restarts=1)
    old = pod(1, terminated(1, at=5), suffix="old", created=0)
    new = pod(1, terminated(1, at=41), suffix="new", created=15)
    world.show_pods(pod(0, containers=[both]), old, new, pod(2, terminated(1, at=45)))
    await world.report(active=1)
    assert [line.partition(" (")[0] for line in world.told] == ["attempt 0, restart 1: rank 0", "attempt 0: rank 2"]
    assert len(world.events) == 3


async def test_attempts_before_the_last_restart_of_the_jobset_are_over_for_another_process(world: FailingWorld) -> None:
    await world.report(active=1, ready=1, restarts=1)
    await world.clock.advance(20)
    world.restart()
    world.show_pods(pod(0, terminated(1, at=5)), failing(at=40, attempt=1))
    await world.report(active=1, restarts=1)
    assert [line.partition(" (")[0] for line in world.told] == ["attempt 1: rank 1"]


async def test_a_healthy_job_costs_no_request_after_another_process_took_over(world: FailingWorld) -> None:
    world.restart()
    assert await world.reconcile() == DONE
    assert world.reads == 0
