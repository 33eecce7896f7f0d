"""The reconciler of jobs: the life of a job, and what becomes of it when something goes wrong."""

import pytest
from support.jobworld import JobWorld, job_object, pytorchjob, replicas, requests_of

from trainmaster.controller.conditions import BLOCKED
from trainmaster.controller.kube.rest.errors import Conflict, Forbidden, Invalid, RequestTimeout
from trainmaster.controller.reconciling.jobs.decider import MANY_PODS, SECONDS_PER_POD
from trainmaster.controller.reconciling.outcomes import DONE, ExpectationsPending, Requeue, RequeueAfter, TerminalError
from trainmaster.runtime.jsontree import JsonObject

ALL = ["demo-master-0", "demo-worker-0", "demo-worker-1"]


def world_with(policy: JsonObject | None = None) -> JobWorld:
    """A PyTorchJob with a master and two workers."""
    return JobWorld(pytorchjob(master=replicas(1), worker=replicas(2), policy=policy))


async def settled(policy: JsonObject | None = None) -> JobWorld:
    """The same, with its pods."""
    world = world_with(policy)
    await world.settle()
    return world


async def test_a_job_is_created_runs_and_succeeds_with_three_writes_of_its_status() -> None:
    world = world_with()
    assert await world.settle() == DONE
    assert world.names("Pod") == world.names("Service") == ALL
    assert world.conditions == [("Created", "True")]
    await world.run_and_settle()
    assert world.conditions == [("Created", "True"), ("Running", "True")]
    await world.see_phase("demo-master-0", "Succeeded", exit_code=0)
    assert world.conditions == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    counts = {name: each.get("succeeded") for name, each in world.status["replicaStatuses"].items()}
    assert counts == {"Master": 1, "Worker": 2}
    assert world.requests.count("patch status") == 3
    assert len(world.requests) == 2 * len(ALL) + 3


@pytest.mark.guarantee("C-12")
async def test_a_settled_job_costs_no_request_also_after_a_restart() -> None:
    world = await settled()
    await world.run_and_settle()
    world.restart()
    world.requests.clear()
    assert await world.reconcile() == DONE
    assert world.requests == []


@pytest.mark.defect("V1-B8")
async def test_nothing_is_done_before_the_caches_show_all_of_our_own_writes() -> None:
    world = world_with()
    world.lagging = True
    await world.reconcile()
    written = len(world.requests)
    assert isinstance(await world.reconcile(), ExpectationsPending)
    assert len(world.requests) == written
    world.catch_up()
    assert await world.reconcile() == DONE
    assert len(world.requests) == written


async def test_a_job_that_ends_makes_and_replaces_nothing_any_more() -> None:
    world = await settled()
    await world.run_and_settle()
    world.remove("Pod", "demo-worker-0")
    world.set_phase("demo-worker-1", "Failed", exit_code=1)
    world.set_phase("demo-master-0", "Succeeded", exit_code=0)
    start = len(world.requests)
    await world.settle()
    assert world.requests[start:] == ["patch status"]
    assert world.state == "Succeeded"


async def test_a_job_that_runs_already_is_not_judged_again() -> None:
    """Another operator has admitted it, or an earlier version of this one."""
    world = await settled()
    world.run()
    await world.edit(pytorchReplicaSpecs={"Master": replicas(2), "Worker": replicas(2)})
    assert world.state == "Running"


@pytest.mark.defect("V1-B2")
async def test_replacements_count_for_the_backoff_limit_and_a_crash_counts_none_twice() -> None:
    world = await JobWorld.settled(pytorchjob(worker=replicas(1, "ExitCode"), policy={"backoffLimit": 2}))
    for number in (1, 2):
        world.set_phase("demo-worker-0", "Failed", exit_code=137)
        world.refusals["delete Pod demo-worker-0"] = RequestTimeout("lost")
        with pytest.raises(RequestTimeout):
            await world.reconcile()
        world.refusals.clear()
        world.restart()
        await world.settle()
        assert world.status["replicaStatuses"]["Worker"]["restarts"] == number
        assert "Failed" not in dict(world.conditions)
    await world.see_phase("demo-worker-0", "Failed", exit_code=137)
    assert world.state == "Failed"
    assert "backoff limit" in world.status["conditions"][-1]["message"]


@pytest.mark.defect("V1-B6")
async def test_a_permanent_failure_has_a_completion_time_and_the_job_is_deleted_in_time() -> None:
    world = await JobWorld.settled(pytorchjob(master=replicas(1, "ExitCode"), policy={"ttlSecondsAfterFinished": 60}))
    outcome = await world.see_phase("demo-master-0", "Failed", exit_code=1)
    assert world.status["completionTime"]
    assert outcome == RequeueAfter(60)
    await world.clock.advance(60)
    await world.reconcile()
    assert world.requests[-1] == "delete PyTorchJob demo"
    assert "Normal SuccessfulDeleteJob: Deleted job: demo" in world.events


@pytest.mark.defect("V1-B1")
async def test_a_deadline_is_noticed_although_nothing_happens() -> None:
    world = world_with({"activeDeadlineSeconds": 30})
    assert await world.settle() == RequeueAfter(30)
    await world.clock.advance(30)
    await world.settle()
    assert world.state == "Failed"
    assert "active longer" in world.status["conditions"][-1]["message"]


@pytest.mark.defect("V1-B5")
async def test_a_terminating_pod_fails_nobody_and_is_made_again_when_it_is_gone() -> None:
    world = await JobWorld.settled(pytorchjob(worker=replicas(1, "Never")))
    await world.run_and_settle()
    await world.see_phase("demo-worker-0", "Running", deleting=True)
    assert world.state == "Running"
    world.remove("Pod", "demo-worker-0")
    await world.settle()
    assert world.names("Pod") == ["demo-worker-0"]
    assert "Failed" not in dict(world.conditions)


@pytest.mark.defect("V1-B28")
async def test_a_resumed_job_is_not_shown_as_suspended() -> None:
    world = await settled({"suspend": True})
    assert (world.state, world.names("Pod"), world.status.get("startTime")) == ("Suspended", [], None)
    await world.edit(runPolicy={"suspend": False})
    assert world.conditions == [("Suspended", "False"), ("Created", "True")]
    await world.run_and_settle()
    assert world.conditions == [("Created", "True"), ("Suspended", "False"), ("Running", "True")]
    await world.edit(runPolicy={"suspend": True})
    assert world.names("Pod") == world.names("Service") == []
    assert (world.state, dict(world.conditions)["Running"]) == ("Suspended", "False")
    assert sum("is suspended" in each for each in world.events) == 2


@pytest.mark.defect("V1-B24")
async def test_a_job_that_waits_for_its_gang_costs_no_request() -> None:
    world = await JobWorld.settled(pytorchjob(master=replicas(1)), gang="volcano")
    written = len(world.requests)
    group = world.server["PodGroup", "demo"]
    for number in range(3):
        world.put({**group, "status": {"phase": "Pending", "seen": number}})
        await world.settle()
    assert len(world.requests) == written == 2  # the group, and that the job was created


async def test_a_running_gang_goes_on_when_its_group_is_deleted_by_somebody() -> None:
    world = await JobWorld.settled(pytorchjob(worker=replicas(2)), gang="volcano")
    world.put({**world.server["PodGroup", "demo"], "status": {"phase": "Running"}})
    await world.settle()
    await world.run_and_settle()
    world.remove("PodGroup", "demo")
    for name in world.names("Pod"):
        await world.see_phase(name, "Succeeded", exit_code=0)
    assert world.state == "Succeeded"


async def test_a_service_of_somebody_else_that_no_cache_shows_is_found_by_the_creation() -> None:
    world = world_with()
    world.lagging = True
    world.put({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "demo-worker-1", "uid": "theirs"}})
    await world.reconcile()
    assert world.state == BLOCKED
    assert 'Service "demo-worker-1" exists' in str(world.status)
    assert any(each.startswith("Warning FailedCreateService: Error creating: ") for each in world.events)


async def test_what_an_earlier_job_of_the_name_left_is_waited_for() -> None:
    world = await JobWorld.settled(pytorchjob(worker=replicas(1)))
    world.put(pytorchjob(worker=replicas(1), uid="uid-2"))
    assert isinstance(await world.settle(), RequeueAfter)
    assert BLOCKED not in dict(world.conditions)
    world.remove("Pod", "demo-worker-0")
    world.remove("Service", "demo-worker-0")
    await world.settle()
    assert world.pod("demo-worker-0")["metadata"]["ownerReferences"][0]["uid"] == "uid-2"


async def test_a_pod_that_the_server_refuses_blocks_the_job_until_it_is_admitted() -> None:
    world = world_with()
    refusal = Invalid(status=422, reason="Invalid", message="the image is no good")
    world.refusals["create Pod demo-master-0"] = refusal
    outcome = await world.reconcile()
    assert isinstance(outcome, Requeue)
    assert (world.state, world.status["conditions"][-1]["reason"]) == (BLOCKED, "ApplyFailed")
    assert "startTime" not in world.status
    assert "Warning FailedCreatePod: Error creating: the image is no good" in world.events
    world.refusals.clear()
    await world.settle()
    assert (world.names("Pod"), world.state) == (ALL, "Created")


async def test_the_time_of_a_job_does_not_begin_before_a_pod_of_it_could_be_created() -> None:
    """A quota keeps it waiting for longer than its deadline."""
    world = world_with({"activeDeadlineSeconds": 30})
    for name in ALL:
        world.refusals[f"create Pod {name}"] = Forbidden(status=403, reason="Forbidden", message="exceeded quota")
    await world.reconcile()
    assert world.conditions == [("Created", "True"), (BLOCKED, "True")]
    await world.clock.advance(60)
    await world.reconcile()
    assert world.state == BLOCKED
    world.refusals.clear()
    await world.settle()
    assert (world.names("Pod"), world.state) == (ALL, "Created")


async def test_what_may_not_be_created_is_not_tried_a_thousand_times() -> None:
    world = JobWorld(pytorchjob(worker=replicas(1000)))
    for index in range(1000):
        refusal = Forbidden(status=403, reason="Forbidden", message="exceeded quota")
        world.refusals[f"create Pod demo-worker-{index}"] = refusal
    await world.reconcile()
    assert len(list(requests_of(world, "create"))) <= 4


async def test_a_job_of_many_pods_is_not_looked_at_for_each_of_their_events() -> None:
    world = await JobWorld.settled(pytorchjob(worker=replicas(MANY_PODS)))
    await world.clock.advance(1)
    world.run()
    assert await world.reconcile() == DONE
    world.set_phase("demo-worker-0", "Succeeded", exit_code=0)
    seconds = MANY_PODS * SECONDS_PER_POD
    for _ in range(3):
        outcome = await world.reconcile()
        assert isinstance(outcome, ExpectationsPending)
        assert outcome.seconds == pytest.approx(seconds)
    await world.clock.advance(seconds)
    await world.reconcile()
    await world.clock.advance(1)
    await world.reconcile()
    assert world.status["replicaStatuses"]["Worker"]["succeeded"] == 1


@pytest.mark.guarantee("C-1")
async def test_what_was_built_before_is_built_again_only_for_a_job_that_still_exists() -> None:
    world = await settled()
    world.remove("Pod", "demo-worker-0")
    world.server.pop(("PyTorchJob", "demo"))  # and the cache of jobs has not seen it
    with pytest.raises(Conflict):
        await world.reconcile()
    assert world.names("Pod") == ["demo-master-0", "demo-worker-1"]


@pytest.mark.defect("V1-B9")
async def test_a_type_without_replicas_has_no_pods() -> None:
    """The original creates a pod and deletes it, for ever."""
    world = await JobWorld.settled(job_object("TFJob", {"PS": _tf(0), "Worker": _tf(1)}))
    assert world.names("Pod") == ["demo-worker-0"]


@pytest.mark.defect("V1-B9")
async def test_a_job_that_is_scaled_to_nothing_has_not_succeeded() -> None:
    """`kubectl scale` asks no webhook."""
    world = await JobWorld.settled(job_object("JAXJob", {"Worker": replicas(2, container="jax")}))
    await world.edit(jaxReplicaSpecs={"Worker": replicas(0, container="jax")})
    assert (world.names("Pod"), world.state) == ([], "Created")
    await world.edit(jaxReplicaSpecs={"Worker": replicas(1, container="jax")})
    assert world.names("Pod") == ["demo-worker-0"]


@pytest.mark.defect("V1-B4")
async def test_a_jaxjob_of_another_controller_is_left_alone_too() -> None:
    types = {"Worker": replicas(1, container="jax")}
    world = JobWorld(job_object("JAXJob", types, policy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    assert await world.reconcile() == DONE
    assert world.requests == []


async def test_a_job_that_cannot_be_read_is_told_once_and_nothing_is_done() -> None:
    world = world_with({"suspend": "yes"})
    assert isinstance(await world.reconcile(), TerminalError)
    assert world.state == BLOCKED
    assert "spec.runPolicy.suspend: must be a boolean" in world.status["conditions"][-1]["message"]
    written = len(world.requests)
    assert isinstance(await world.reconcile(), TerminalError)
    assert len(world.requests) == written


@pytest.mark.defect("V1-B18")
async def test_an_invalid_job_that_nobody_refused_is_blocked_and_not_tried_again() -> None:
    world = JobWorld(job_object("MPIJob", {"Worker": replicas(1, container="mpi")}))
    assert await world.settle() == DONE
    assert (world.state, world.status["conditions"][-1]["reason"]) == (BLOCKED, "MPIJobFailedValidation")
    assert sum("MPIJobFailedValidation" in each for each in world.events) == 1
    assert world.names("Pod") == []


def _tf(count: int) -> JsonObject:
    return replicas(count, container="tensorflow")
