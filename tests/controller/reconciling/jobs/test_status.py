"""What a job tells besides its conditions, and how replicas that fail are counted."""

from collections import Counter
from collections.abc import Callable

import pytest
from support.jobworld import KINDS, JobWorld, job_object, pytorchjob, replicas, requests_of
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.rest.errors import Conflict, Forbidden, TransportError
from trainmaster.controller.reconciling.jobs.replicas import (
    FIRST_DELAY,
    FORGOTTEN_AFTER,
    FREE,
    LONGEST_DELAY,
    RestartBackoff,
)
from trainmaster.controller.reconciling.outcomes import RequeueAfter
from trainmaster.runtime.jsontree import JsonObject

Counts = Callable[[], dict[str, float]]


@pytest.fixture
def counts() -> Counts:
    """What the counters of PyTorchJobs have gained since the test began; zeros are left out."""
    labels = {"job_namespace": "team", "framework": "pytorch"}
    names = ("created", "deleted", "successful", "failed", "restarted")

    def read() -> dict[str, float]:
        return {name: value_of(f"training_operator_jobs_{name}_total", labels) or 0 for name in names}

    before = read()
    return lambda: {name: value - before[name] for name, value in read().items() if value != before[name]}


@pytest.mark.defect("V1-B27")
async def test_a_job_is_said_to_be_created_in_its_first_status_and_counted_once(counts: Counts) -> None:
    world = await JobWorld.settled(pytorchjob(master=replicas(1)))
    assert world.conditions == [("Created", "True")]
    world.restart()
    world.requests.clear()
    await world.settle()
    await world.edit(runPolicy={"cleanPodPolicy": "All"})
    assert counts() == {"created": 1}
    assert world.requests == []


@pytest.mark.defect("V1-B29")
@pytest.mark.parametrize("performed", [True, False])
async def test_a_status_whose_answer_is_lost_is_told_once(counts: Counts, *, performed: bool) -> None:
    """Nobody knows whether the server performed it until the cache shows that."""
    world = await JobWorld.settled(pytorchjob(master=replicas(1)))
    world.run()
    await world.settle()
    world.set_phase("demo-master-0", "Succeeded", exit_code=0)
    world.lose_answer("patch status", performed=performed)
    with pytest.raises(TransportError):
        await world.reconcile()
    assert "successful" not in counts()
    world.clock.step(1)
    await world.settle()
    assert (world.state, counts()) == ("Succeeded", {"created": 1, "successful": 1})
    assert sum("successfully completed" in each for each in world.events) == 1


@pytest.mark.defect("V1-B29")
async def test_a_status_whose_answer_is_lost_is_told_although_others_write_into_it_too(counts: Counts) -> None:
    world = await JobWorld.settled(pytorchjob(master=replicas(1)))
    await world.run_and_settle()
    world.set_phase("demo-master-0", "Succeeded", exit_code=0)
    world.lose_answer("patch status", performed=True)
    with pytest.raises(TransportError):
        await world.reconcile()
    world.put({**world.job, "status": {**world.status, "lastReconcileTime": "2026-01-31T12:00:00Z"}})
    world.clock.step(1)
    await world.settle()
    assert counts() == {"created": 1, "successful": 1}


@pytest.mark.defect("V1-B29")
async def test_a_status_whose_answer_is_lost_is_told_after_a_conflict_of_the_next_one(counts: Counts) -> None:
    """The cache lags, so that a second later, with other times in it, it is written again."""
    world = await JobWorld.settled(pytorchjob(master=replicas(1)))
    world.run()
    await world.settle()
    world.set_phase("demo-master-0", "Succeeded", exit_code=0)
    world.lagging = True
    world.lose_answer("patch status", performed=True)
    with pytest.raises(TransportError):
        await world.reconcile()
    world.clock.step(5)
    with pytest.raises(Conflict):
        await world.reconcile()
    world.catch_up()
    await world.settle()
    assert (world.state, counts()) == ("Succeeded", {"created": 1, "successful": 1})


@pytest.mark.defect("V1-B29")
async def test_every_way_to_fail_is_counted_once(counts: Counts) -> None:
    for policy, code, limits in (
        ("Never", 1, {}),
        ("ExitCode", 1, {}),
        ("OnFailure", 1, {"backoffLimit": 0}),
        ("OnFailure", None, {"activeDeadlineSeconds": 30}),
    ):
        before = counts().get("failed", 0)
        world = await JobWorld.settled(pytorchjob(master=replicas(1, policy), policy=limits))
        if code is not None:
            world.set_phase("demo-master-0", "Failed", exit_code=code)
        await world.clock.advance(30)
        await world.settle()
        assert world.state == "Failed"
        world.restart()
        await world.settle()
        assert counts()["failed"] == before + 1, (policy, limits)


@pytest.mark.defect("V1-B29")
async def test_a_restart_is_counted_once(counts: Counts) -> None:
    world = await JobWorld.settled(pytorchjob(master=replicas(1), worker=replicas(1, "ExitCode")))
    await world.see_phase("demo-worker-0", "Failed", exit_code=137)
    assert counts() == {"created": 1, "restarted": 1}


@pytest.mark.defect("V1-B30")
async def test_nothing_is_told_again_by_a_reconcile_that_changes_nothing() -> None:
    """A suspended job, one whose worker has ended, and a finished one of a gang."""
    world = await JobWorld.settled(
        pytorchjob(master=replicas(1), worker=replicas(1), policy={"suspend": True}), gang="volcano"
    )
    await world.reconcile()
    await world.edit(runPolicy={"suspend": False})
    group = world.server["PodGroup", "demo"]
    world.put({**group, "status": {"phase": "Inqueue"}})
    await world.settle()
    world.set_phase("demo-worker-0", "Succeeded", exit_code=0)
    for _ in range(3):
        await world.settle()
        await world.reconcile()
    world.set_phase("demo-master-0", "Succeeded", exit_code=0)
    for _ in range(3):
        await world.settle()
        await world.reconcile()
    assert world.state == "Succeeded"
    assert [event for event, times in Counter(world.events).items() if times > 1] == []
    assert "Normal PyTorchJobSuspended: PyTorchJob demo is suspended." in world.events
    assert "Normal JobTerminated: Job has been terminated. Deleting PodGroup" in world.events


@pytest.mark.defect("V1-B32")
@pytest.mark.parametrize(
    "limits", [{"activeDeadlineSeconds": 30}, {"backoffLimit": 0}], ids=lambda limits: next(iter(limits))
)
async def test_a_limit_is_told_before_a_job_without_time_to_live_goes(limits: dict[str, int]) -> None:
    world = await JobWorld.settled(pytorchjob(master=replicas(1), policy={"ttlSecondsAfterFinished": 0, **limits}))
    world.set_phase("demo-master-0", "Failed", exit_code=1) if "backoffLimit" in limits else world.run()
    await world.clock.advance(30)
    written = len(world.requests)
    while world.names("PyTorchJob"):
        assert len(world.requests) < written + 10
        await world.reconcile()
    assert [each for each in world.requests[written:] if "Pod" not in each and "Service" not in each] == [
        "patch status",
        "delete PyTorchJob demo",
    ]


@pytest.mark.defect("V1-B33")
@pytest.mark.parametrize("kind", KINDS)
async def test_the_deletion_of_a_job_is_told_as_such(kind: str) -> None:
    job_kind = KINDS[kind]
    types = {job_kind.leading_types[0]: replicas(1, container=job_kind.container_name)}
    world = await JobWorld.settled(job_object(kind, types, policy={"ttlSecondsAfterFinished": 0}))
    (pod,) = world.names("Pod")
    world.set_phase(pod, "Succeeded", exit_code=0)
    while world.names(kind):
        await world.reconcile()
    assert "Normal SuccessfulDeleteJob: Deleted job: demo" in world.events
    assert not [event for event in world.events if event.startswith("Normal SuccessfulDeletePod:")]


def job(policy: str, **run_policy: object) -> JsonObject:
    return pytorchjob(master=replicas(1, policy), worker=replicas(1, policy), policy=run_policy)


async def running(obj: JsonObject) -> JobWorld:
    world = await JobWorld.settled(obj)
    await world.run_and_settle()
    return world


@pytest.mark.defect("V1-B2")
async def test_restarts_in_place_of_a_replaced_pod_count_once() -> None:
    """V1-B2: while a pod is there that is being replaced, its restarts are in the status already."""
    world = await running(job("OnFailure", backoffLimit=5))
    await world.see_phase("demo-worker-0", "Failed", restarts=3)
    assert world.status["replicaStatuses"]["Worker"]["restarts"] == 4
    # The delete did not get through, or a finalizer holds the pod.
    world = await running(job("OnFailure", backoffLimit=5))
    world.set_phase("demo-worker-0", "Failed", restarts=3)
    counted = world.pod("demo-worker-0")["metadata"]["uid"]
    status = {**world.status, "replicaStatuses": {"Worker": {"restarts": 4, "restartedPodUIDs": [counted]}}}
    world.put({**world.job, "status": status})
    await world.settle()
    assert world.state != "Failed"


@pytest.mark.defect("V1-B5")
@pytest.mark.parametrize(("policy", "limits"), [("Never", {}), ("OnFailure", {}), ("OnFailure", {"backoffLimit": 0})])
async def test_a_pod_that_fails_because_it_is_deleted_is_no_failure(policy: str, limits: dict[str, int]) -> None:
    """V1-B5: whoever is deleted ends by a signal, and its phase is Failed until it is gone."""
    world = await running(job(policy, **limits))
    await world.see_phase("demo-worker-0", "Failed", exit_code=143, deleting=True)
    assert world.state == "Running"
    world.remove("Pod", "demo-worker-0")
    await world.settle()
    assert "demo-worker-0" in world.names("Pod")


async def test_a_pod_that_fails_at_once_is_not_replaced_a_thousand_times() -> None:
    """A node that refuses each pod, for instance: without a backoff it would be made and deleted all the time."""
    world = await running(job("OnFailure"))
    for _ in range(20):
        outcome = await world.see_phase("demo-worker-0", "Failed", exit_code=1)
    assert len(list(requests_of(world, "delete Pod"))) == FREE
    assert world.state == "Restarting"
    assert outcome == RequeueAfter(FIRST_DELAY)
    world.clock.step(1)
    written = world.job["metadata"]["resourceVersion"]
    told = len(world.events)
    await world.settle()
    assert (len(world.events), world.job["metadata"]["resourceVersion"]) == (told, written)
    world.clock.step(FIRST_DELAY)
    await world.settle()
    assert len(list(requests_of(world, "delete Pod"))) == FREE + 1


def replacements() -> float:
    """How often failed pods of PyTorchJobs were replaced."""
    return value_of("training_operator_jobs_restarted_total", {"job_namespace": "team", "framework": "pytorch"}) or 0


@pytest.mark.defect("V1-B29")
@pytest.mark.parametrize("limits", [{}, {"backoffLimit": 5}], ids=["without a limit", "with a limit"])
async def test_a_replacement_is_counted_once_however_often_the_failed_pod_is_not_deleted(
    limits: dict[str, int],
) -> None:
    world = await running(job("OnFailure", **limits))
    before = replacements()
    for number in (1, 2):
        world.set_phase("demo-worker-0", "Failed", exit_code=1)
        world.refusals["delete Pod demo-worker-0"] = Forbidden(status=403, reason="Forbidden", message="no right to")
        for _ in range(3):
            with pytest.raises(Forbidden):
                await world.reconcile()
        world.refusals.clear()
        await world.settle()
        assert replacements() == before + number
        assert sum("is restarting because Worker" in each for each in world.events) == number


def test_each_replacement_waits_longer_until_one_lasts() -> None:
    clock = VirtualClock()
    backoff = RestartBackoff(clock)
    waits = []
    for number in range(12):
        waits.append(backoff.wait("uid", pod(number)))
        backoff.record("uid", pod(number))
        assert backoff.wait("uid", pod(number)) == 0.0
    assert waits[: FREE + 2] == [0.0] * FREE + [FIRST_DELAY, 2 * FIRST_DELAY]
    assert waits[-1] == LONGEST_DELAY
    assert backoff.wait("other", pod(0)) == 0.0
    clock.step(FORGOTTEN_AFTER)
    backoff.record("uid", pod(12))
    assert backoff.wait("uid", pod(13)) == 0.0


def pod(number: int) -> JsonObject:
    """The pod that comes so many replacements after the first one."""
    return {"metadata": {"name": "pod", "uid": f"uid-{number}"}}


@pytest.mark.parametrize(("lead", "side", "state"), [(137, 1, "Restarting"), (1, 137, "Failed")])
async def test_the_exit_code_is_that_of_the_first_container_where_any_name_will_do(
    lead: int, side: int, state: str
) -> None:
    """The kubelet sorts statuses by name, so the first of them may be that of a side car."""
    launcher = replicas(1, "ExitCode", container="lead")
    launcher["template"]["spec"]["containers"].append({"name": "a-side-car", "image": "image"})
    world = await running(job_object("MPIJob", {"Launcher": launcher, "Worker": replicas(1, container="mpi")}))
    world.set_phase("demo-launcher", "Failed")
    pod = world.pod("demo-launcher")
    pod["status"]["containerStatuses"] = [
        {"name": name, "state": {"terminated": {"exitCode": code}}}
        for name, code in (("a-side-car", side), ("lead", lead))
    ]
    world.put(pod)
    await world.reconcile()
    assert world.state == state
