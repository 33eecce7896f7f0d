"""When the pods of a TrainJob are read, and what becomes of what they tell: condition, event, message of the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from support.failing_pods import BACKING_OFF, RUNNING, container_status, pod, terminated
from support.objects import replicated_job, runtime_object, trainjob_object
from support.world import KEY, World

from trainmaster.controller.kube.rest.errors import Forbidden, KubeError, ServerError
from trainmaster.controller.reconciling.outcomes import DONE, Outcome, RequeueAfter
from trainmaster.controller.reconciling.trainjobs.failed_pods import MOST_PODS, PAGE, TIME_LIMIT
from trainmaster.controller.reconciling.trainjobs.first_failure_reporter import (
    BURST,
    FIRST_LOOK,
    INTERVAL,
    LONGEST_INTERVAL,
    SETTLING,
    FirstFailureReporter,
)
from trainmaster.controller.reconciling.trainjobs.reconciler import TrainJobReconciler
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject

NAN = "Traceback (most recent call last):\nValueError: my loss is NaN\n"
FAILED = {
    "type": "Failed",
    "status": "True",
    "reason": "FailedJobs",
    "message": "jobset failed due to one or more job failures (first failed job: demo-node-0)",
    "lastTransitionTime": "2026-01-01T00:00:06Z",
}
COMPLETED = {**FAILED, "type": "Completed", "reason": "AllJobsCompleted", "message": "jobset completed successfully"}


class FailingWorld(World):
    """A world with a running TrainJob of two nodes."""

    @classmethod
    async def starting(cls, *jobs: JsonObject) -> FailingWorld:
        world = cls()
        world.put(trainjob_object(), runtime_object(*jobs))
        await world.reconcile()
        return world

    @classmethod
    async def running(cls) -> FailingWorld:
        world = await cls.starting()
        world.show_pods(pod(0), pod(1))
        await world.report(active=1)
        await world.report(active=1, ready=1)
        await world.clock.advance(2)
        await world.reconcile()
        assert await world.reconcile() == DONE
        assert world.reads == 0
        return world

    async def report(self, *conditions: JsonObject, restarts: int = 0, **counts: int) -> Outcome:
        """Have JobSet report, and reconcile."""
        jobs = [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **counts}]
        status = {"replicatedJobsStatus": jobs, "restarts": restarts, "conditions": list(conditions)}
        self.change("JobSet", status=status)
        return await self.reconcile()

    def show_pods(self, *pods: JsonObject) -> None:
        """Have the server show these pods of the JobSet."""
        for each in pods:
            each["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"] = self.find("JobSet")["metadata"]["uid"]
        self.pods = list(pods)

    @property
    def reads(self) -> int:
        return sum(request.startswith("list Pod") for request in self.requests)

    @property
    def told(self) -> list[str]:
        """The lines of the condition."""
        return str(self.conditions.get("ContainerFailed", {}).get("message", "")).splitlines()


def failing(rank: int = 1, *, at: int = 5, run: int = 0, message: str = NAN, **fields: Any) -> JsonObject:
    """A pod whose container has failed and waits for its restart."""
    container = container_status(BACKING_OFF, last=terminated(1, at=at, message=message), restarts=run)
    return pod(rank, containers=[container], **fields)


TOLD = (
    "attempt 0: rank 1 (pod demo-node-0-1-abcde, container node) failed at 2026-01-01T00:00:05Z with exit code 1: "
    "ValueError: my loss is NaN"
)


async def test_a_healthy_life_costs_no_request_for_pods() -> None:
    world = await FailingWorld.running()
    await world.report(active=1, ready=1)
    await world.report(active=0, ready=1)
    await world.report(COMPLETED, succeeded=1)
    assert await world.reconcile() == DONE
    assert world.reads == 0
    assert world.conditions.keys() == {"Complete"}


async def test_a_container_that_fails_and_is_restarted_in_place_is_told_at_once() -> None:
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    outcome = await world.report(active=1)
    assert world.told == [TOLD]
    assert world.conditions["ContainerFailed"]["reason"] == "Error"
    assert world.events == [TOLD]
    assert isinstance(outcome, RequeueAfter)
    assert outcome.seconds <= SETTLING


async def test_when_all_ranks_are_ready_again_the_condition_is_gone() -> None:
    """A TrainJob with any condition is never running for the Kubeflow SDK."""
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    await world.report(active=1)
    await world.report(active=1, ready=1)
    assert world.conditions == {}
    await world.clock.advance(SETTLING)
    await world.reconcile()
    assert world.conditions == {}
    assert await world.report(active=1, ready=1) == DONE
    assert world.events == [TOLD]

    world.show_pods(pod(0), failing(run=1, at=30))
    await world.report(active=1)
    assert [line.partition(": ")[0] for line in world.told] == ["attempt 0", "attempt 0, restart 1"]
    assert len(world.events) == 2


async def test_the_message_of_the_end_has_the_first_failure_after_the_words_of_jobset() -> None:
    world = await FailingWorld.running()
    world.show_pods(pod(0, terminated(143, at=5)), pod(1, terminated(1, at=5, message=NAN)))
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"] == f"{FAILED['message']}; {TOLD}"
    assert list(world.conditions) == ["Failed", "ContainerFailed"]
    assert await world.reconcile() == DONE
    assert (world.events, world.reads) == ([TOLD], 1)


async def test_without_a_failure_that_can_be_seen_the_end_is_told_as_jobset_tells_it() -> None:
    world = await FailingWorld.running()
    world.pods = []
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"] == FAILED["message"]
    assert world.conditions.keys() == {"Failed"}


async def test_what_was_told_stays_when_the_job_fails_and_its_pods_are_gone() -> None:
    """With backoffLimit 3 the Job controller deletes the pod when it is restarted for the third time, so: ready."""
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    await world.report(active=1)
    await world.report(active=1, ready=1)
    world.pods = []
    await world.report()
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"].endswith(TOLD)
    assert world.told == [TOLD]


async def test_a_failure_that_is_known_later_but_was_earlier_takes_its_place() -> None:
    world = await FailingWorld.running()
    world.show_pods(failing(0, at=6, message="gloo: Connection closed by peer"), pod(1))
    await world.report(active=1)
    assert "rank 0" in world.told[0]
    world.show_pods(failing(0, at=6, message="gloo: Connection closed by peer"), failing(1))
    await world.clock.advance(SETTLING)
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


async def test_a_restart_of_the_whole_jobset_is_another_attempt() -> None:
    world = await FailingWorld.running()
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
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    await world.report(active=1)
    world.show_pods(pod(0, attempt=2), failing(at=9, attempt=1, suffix="later"))
    await world.report(active=1, restarts=1)
    assert len(world.told) == 1
    await world.report(active=1, restarts=2)
    assert [line.partition(":")[0] for line in world.told] == ["attempt 0", "attempt 1"]
    assert world.reads == 2


async def test_a_pod_that_replaces_a_failed_one_is_a_restart() -> None:
    world = await FailingWorld.running()
    first = pod(1, terminated(1, at=5, message=NAN), suffix="first", created=1)
    world.show_pods(pod(0), first)
    await world.report(active=1)
    await world.report(active=1, ready=1)
    world.show_pods(pod(0), pod(1, terminated(1, at=20), suffix="second", created=15), first)
    await world.report(active=1)
    assert [line.partition(": ")[0] for line in world.told] == ["attempt 0", "attempt 0, restart 1"]


async def test_pods_of_a_predecessor_of_the_same_name_say_nothing() -> None:
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    for each in world.pods:
        each["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"] = "another"
    await world.report(active=1)
    assert (world.reads, world.told, world.events) == (1, [], [])


async def test_a_job_that_is_suspended_does_not_fail() -> None:
    world = await FailingWorld.running()
    trainjob = world.find("TrainJob")
    world.store({**trainjob, "spec": {**trainjob["spec"], "suspend": True}})
    await world.reconcile()
    await world.report()
    assert world.reads == 0


async def test_a_crash_loop_is_not_a_loop_of_requests() -> None:
    world = await FailingWorld.running()
    for second in range(600):
        world.show_pods(pod(0), failing(run=second, at=second % 60))
        await world.report(active=1)
        await world.report(active=1, ready=1)
        await world.clock.advance(1)
    assert world.reads <= BURST + 600 / INTERVAL + 1
    assert len(world.told) <= 5


async def test_when_the_job_has_failed_its_pods_are_read_however_often_they_were_before() -> None:
    world = await FailingWorld.running()
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
    reporter = FirstFailureReporter(world, world, world.clock)
    world.change("JobSet", status={"replicatedJobsStatus": [{"name": "node", "active": 1}]})
    trainjob, jobset = world.find("TrainJob"), world.find("JobSet")
    keys = [f"team/j{number}" for number in range(100)]
    for key in keys:
        await reporter.observe(key, trainjob, jobset, StatusReport())
    await world.clock.advance(FIRST_LOOK)
    start = world.clock.monotonic()
    dues = [(await reporter.observe(key, trainjob, jobset, StatusReport()))[1] for key in keys]
    assert world.reads == 1
    turns = [each for each in dues[1:] if each is not None]
    assert turns == sorted(set(turns))
    assert len(turns) == 99
    for key, turn in zip(keys[1:], turns, strict=True):
        await world.clock.advance(start + turn - world.clock.monotonic())
        await reporter.observe(key, trainjob, jobset, StatusReport())
    assert world.reads == len(keys)


@pytest.mark.parametrize(
    "refusal",
    [
        Forbidden(status=403, reason="Forbidden", message="pods is forbidden"),
        ServerError(status=500, reason="InternalError", message="no"),
    ],
)
async def test_who_cannot_read_pods_goes_on(refusal: KubeError) -> None:
    world = await FailingWorld.running()
    world.unreadable_pods = refusal
    await world.report(active=1)
    assert (world.reads, world.conditions) == (1, {})
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"] == FAILED["message"]


async def test_a_right_that_is_missing_is_logged_by_whoever_tells_of_rights_alone() -> None:
    world = await FailingWorld.running()
    refusal = Forbidden(status=403, reason="Forbidden", message="pods is forbidden")
    refusal.told = True
    world.unreadable_pods = refusal
    with structlog.testing.capture_logs() as logs:
        await world.report(active=1)
    assert [entry["log_level"] for entry in logs if "could not be read" in entry["event"]] == ["debug"]


async def test_a_server_that_does_not_answer_holds_nobody_up() -> None:
    world = await FailingWorld.running()
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
    assert world.conditions["Failed"]["message"] == FAILED["message"]


async def test_two_hundred_pods_that_fail_at_once_are_one_event() -> None:
    world = await FailingWorld.running()
    lost = [failing(rank, at=6, message="Connection reset by peer") for rank in range(200)]
    lost[137] = failing(137, at=6, message="ValueError: my loss is NaN")
    world.show_pods(*lost)
    await world.report(active=1)
    assert world.reads == 200 / PAGE
    assert len(world.events) == 1
    assert "rank 137 " in world.told[0]


async def test_of_many_pods_only_so_many_are_read() -> None:
    world = await FailingWorld.running()
    world.show_pods(*(failing(rank) for rank in range(MOST_PODS + 500)))
    await world.report(active=1)
    assert world.reads == MOST_PODS / PAGE
    assert len(world.told) == 1


def restarted(world: World) -> None:
    """Have another process take over."""
    old = world.reconciler
    world.reconciler = TrainJobReconciler(
        client=world,  # type: ignore[arg-type]
        trainjobs=world.trainjobs,
        stores={kind: (world.resources[kind], store) for kind, store in world.stores.items()},
        workloads=world.workloads,
        framework=world.framework,
        recorder=world,  # type: ignore[arg-type]
        clock=world.clock,
        deleted_workloads=world.deleted_workloads,
    )
    assert old is not world.reconciler


async def test_another_process_tells_nothing_again_and_forgets_nothing() -> None:
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    await world.report(active=1)
    restarted(world)
    await world.reconcile()
    assert (world.told, world.events) == ([TOLD], [TOLD])
    await world.clock.advance(FIRST_LOOK)
    await world.reconcile()
    assert (world.told, world.events, world.reads) == ([TOLD], [TOLD], 2)
    await world.report(FAILED, failed=1)
    assert world.conditions["Failed"]["message"].endswith(TOLD)
    assert world.events == [TOLD]


async def test_another_process_removes_the_condition_when_all_is_ready_again() -> None:
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    await world.report(active=1)
    restarted(world)
    await world.report(active=1, ready=1)
    assert world.conditions == {}


async def test_what_was_overcome_before_another_process_took_over_is_not_told_again() -> None:
    """That it was told, and removed when all was ready, the status does not say any more."""
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    await world.report(active=1)
    await world.report(active=1, ready=1)
    await world.clock.advance(20)
    restarted(world)
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
    restarted(world)
    world.show_pods(pod(0, terminated(1, at=5)), failing(at=40, attempt=1))
    await world.report(active=1, restarts=1)
    assert [line.partition(" (")[0] for line in world.told] == ["attempt 1: rank 1"]


async def test_a_healthy_job_costs_no_request_after_another_process_took_over() -> None:
    world = await FailingWorld.running()
    restarted(world)
    assert await world.reconcile() == DONE
    assert world.reads == 0


async def test_a_jobset_that_was_made_anew_is_judged_anew() -> None:
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    await world.report(active=1)
    world.remove("JobSet")
    await world.reconcile()
    await world.report(active=1)
    assert world.conditions == {}
    world.show_pods(pod(0), failing(suffix="later", at=50))
    await world.report()
    assert len(world.told) == 1
    assert "later" in world.told[0]


async def test_nothing_is_kept_of_a_job_that_is_fine_or_gone() -> None:
    world = await FailingWorld.running()
    reporter = world.reconciler._failure_reporter
    assert (reporter._jobs, reporter._counts) == ({}, {})
    world.show_pods(pod(0), failing())
    await world.report(active=1)
    assert reporter._jobs.keys() == {KEY}
    await world.report(FAILED, failed=1)
    await world.reconcile()
    assert (reporter._jobs, reporter._counts) == ({}, {})


async def test_conditions_of_others_and_their_order_stay() -> None:
    world = await FailingWorld.running()
    world.show_pods(pod(0), failing())
    trainjob = world.find("TrainJob")
    mine = {
        "type": "Mine",
        "status": "False",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
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
    await world.clock.advance(SETTLING)
    await world.report(active=1, ready=1)
    assert world.events == [TOLD]
    assert world.conditions == {}
