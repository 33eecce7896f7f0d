"""What a job tells besides its conditions: events and counters, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from support.jobworld import KINDS, JobWorld, job_object, pytorchjob, replicas
from support.series import value_of

from trainmaster.controller.kube.rest.errors import Conflict, TransportError

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


@pytest.mark.defect("V1-B29")
async def test_a_success_that_meets_a_conflict_is_counted_when_it_is_written(counts: Counts) -> None:
    world = await JobWorld.settled(pytorchjob(master=replicas(1)))
    world.set_phase("demo-master-0", "Succeeded", exit_code=0)
    world.refusals["patch status"] = Conflict(status=409, reason="Conflict")
    with pytest.raises(Conflict):
        await world.reconcile()
    assert counts() == {"created": 1}
    world.refusals.clear()
    await world.settle()
    assert counts() == {"created": 1, "successful": 1}


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
