"""Jobs that no definition lets pass, kinds that fail, and jobs of many replicas: what these may take from others."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from typing import Any

import pytest
from support.jobworld import KEY, KINDS, JobWorld, job_object, pytorchjob, replicas, requests_of
from support.vitals import calls_of, counted_calls

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.configuration.types import TrainingOperator
from trainmaster.controller.diagnosis.pod_warnings import PodWarnings
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.errors import Forbidden
from trainmaster.controller.reconciling.applier import LARGEST_BATCH
from trainmaster.controller.reconciling.jobs.decider import BYTES_PER_POD, LARGE, MANY_PODS, SECONDS_PER_POD
from trainmaster.controller.reconciling.jobs.objects import MOST_CREATIONS, Plan
from trainmaster.controller.reconciling.jobs.observe import observe
from trainmaster.controller.reconciling.jobs.plan import plan
from trainmaster.controller.reconciling.jobs.replicas import RestartBackoff
from trainmaster.controller.reconciling.outcomes import DONE, UNTIL_FREED, ExpectationsPending, Requeue
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import KindFailed
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jobs.validation import validate_job
from trainmaster.runtime.jsontree import JsonObject


def blocked(world: JobWorld) -> JsonObject:
    return next((each for each in world.status.get("conditions") or [] if each["type"] == "Blocked"), {})


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_more_replicas_than_a_cluster_has_pods_are_refused(kind: str) -> None:
    """Their list alone would fill the memory, whether or not anybody admitted them."""
    replica_type = KINDS[kind].replica_types[-1]
    types = {replica_type: replicas(2**31 - 1, container=KINDS[kind].container_name)}
    world = JobWorld(job_object(kind, types))
    assert await world.reconcile() == DONE
    assert "must be less than or equal to 10000" in blocked(world)["message"]
    assert world.names("Pod") == []


async def test_a_running_job_that_is_scaled_to_more_than_a_cluster_has_keeps_what_it_has() -> None:
    """The scale subresource asks no webhook."""
    world = await JobWorld.settled(pytorchjob(master=replicas(1), worker=replicas(1)))
    world.patch_spec(pytorchReplicaSpecs={"Master": replicas(1), "Worker": replicas(2**31 - 1)})
    assert await world.reconcile() == DONE
    assert "must be less than or equal to 10000" in blocked(world)["message"]
    assert world.names("Pod") == ["demo-master-0", "demo-worker-0"]
    await world.edit(pytorchReplicaSpecs={"Master": replicas(1), "Worker": replicas(2)})
    assert not blocked(world)
    assert world.names("Pod") == ["demo-master-0", "demo-worker-0", "demo-worker-1"]


@pytest.mark.parametrize("error", [ZeroDivisionError("odd"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_a_kind_that_fails_hurts_its_jobs_alone_and_they_say_so(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Whatever it raises: neither its `sys.exit` nor an interrupt ends the process of everybody."""

    def fail(*_: Any) -> None:
        raise error

    world, name = JobWorld(pytorchjob(master=replicas(1))), type(error).__name__
    for point in ("default", "build", "update_job_status", "set_cluster_spec"):
        with monkeypatch.context() as patched:
            patched.setattr(type(world.kind), point, fail)
            with pytest.raises(Exception, match=f"^{name}|odd"):
                await world.settle()
        assert blocked(world)["reason"] == "InternalError"
        assert name in blocked(world)["message"]
        await world.settle()
        assert not blocked(world)
        world.remove("Pod", "demo-master-0")


@pytest.mark.parametrize("point", ["default", "validate"])
def test_a_kind_that_would_end_the_process_at_admission_fails(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def leave(*_: Any) -> None:
        sys.exit(3)

    job = pytorchjob(master=replicas(1))
    kind = KINDS["PyTorchJob"]
    monkeypatch.setattr(type(kind), point, leave)
    with pytest.raises(KindFailed, match=r"^SystemExit: 3$"):
        validate_job(kind, job, None)


async def test_a_pod_without_our_label_is_missed_by_the_cache_and_said_to_be() -> None:
    world = await JobWorld.settled(pytorchjob(master=replicas(1)))
    pod = world.pod("demo-master-0")
    world.remove("Pod", "demo-master-0")
    del pod["metadata"]["labels"][JOB_NAME_LABEL]
    world.lagging = True
    world.put(pod)
    world.lagging = False
    world.stores.pods.update_resource_version(world.pod("demo-master-0")["metadata"]["resourceVersion"])
    await world.reconcile()
    assert blocked(world)["reason"] == "NameTaken"
    assert f'Pod "demo-master-0" has lost the label {JOB_NAME_LABEL}' in blocked(world)["message"]


@pytest.mark.parametrize("kind", ["Pod", "Service"])
async def test_a_name_that_somebody_gives_back_is_taken_soon(kind: str) -> None:
    """No event tells of it, since the caches have only what has our labels: the backoff alone grows to 1000 s."""
    world = JobWorld(pytorchjob(master=replicas(1)))
    world.lagging = True
    world.put({"apiVersion": "v1", "kind": kind, "metadata": {"name": "demo-master-0", "namespace": "default"}})
    world.lagging = False
    outcome = await world.reconcile()
    assert blocked(world)["message"].startswith(f'{kind} "demo-master-0" exists and does not belong to')
    assert isinstance(outcome, Requeue)
    assert outcome.at_latest == UNTIL_FREED
    world.remove(kind, "demo-master-0")
    await world.settle()
    assert not blocked(world)


async def test_what_may_not_be_deleted_is_told() -> None:
    world = await JobWorld.settled(pytorchjob(master=replicas(1)))
    world.patch_spec(runPolicy={"suspend": True})
    world.refusals["delete Pod demo-master-0"] = Forbidden(status=403, reason="Forbidden", message="no right to")
    with pytest.raises(Forbidden):
        await world.reconcile()
    assert world.state == "Suspended"
    assert "Warning FailedDeletePod: Error deleting: no right to" in world.events


async def test_the_pods_of_a_big_job_are_made_when_it_is_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each knows all others in some kinds; a thousand at once would hold up everybody for seconds."""
    world = JobWorld(pytorchjob(master=replicas(1), worker=replicas(100)))
    make, made = type(world.kind).set_cluster_spec, list[int]()

    def noted(*arguments: Any) -> None:
        made.append(len(world.names("Pod")))
        make(*arguments)

    monkeypatch.setattr(type(world.kind), "set_cluster_spec", noted)
    await world.settle()
    assert len(made) == 101
    assert all(index - there <= LARGEST_BATCH for index, there in enumerate(made))


VALUES: list[Any] = [None, 0, -1, 2**31, "x", "", [], {}, [None], [{}], {"a": 1}, True, 1.5]

FULL: JsonObject = pytorchjob(
    master=replicas(1, "OnFailure"),
    policy={
        "cleanPodPolicy": "All",
        "ttlSecondsAfterFinished": 10,
        "activeDeadlineSeconds": 100,
        "backoffLimit": 3,
        "schedulingPolicy": {
            "minAvailable": 1,
            "queue": "q",
            "minResources": {"cpu": "1"},
            "priorityClass": "x",
            "scheduleTimeoutSeconds": 3,
        },
        "suspend": False,
        "managedBy": "kubeflow.org/training-operator",
    },
)


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in pairs:
        yield from paths(value, (*path, key))


def with_value(obj: JsonObject, path: tuple[Any, ...], value: Any) -> JsonObject:
    changed = copy.deepcopy(obj)
    target: Any = changed
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return changed


@pytest.mark.parametrize("gang", ["", "volcano", "coscheduling"])
@pytest.mark.parametrize("path", list(paths(FULL["spec"]))[1:], ids=lambda path: ".".join(map(str, path)))
async def test_no_value_of_any_field_is_an_unforeseen_error(path: tuple[Any, ...], gang: str) -> None:
    """What no definition lets pass is told, or taken for what it may mean; and nothing is done for ever."""
    for value in VALUES:
        world = JobWorld({**FULL, "spec": with_value(FULL["spec"], path, value)}, gang=gang)
        for _ in range(2):
            await world.settle()
            if ("PodGroup", "demo") in world.server:
                world.put({**world.server["PodGroup", "demo"], "status": {"phase": "Running"}})
        await world.settle()
        for phase in ("Running", "Failed"):
            for name in world.names("Pod"):
                await world.see_phase(name, phase, exit_code=137)


async def test_the_work_of_a_reconcile_grows_with_the_number_of_types_not_with_its_square() -> None:
    """Kinds that take any type let a user write thousands of them."""

    async def work(types: int) -> int:
        world = JobWorld(job_object("TFJob", {f"t{n}": replicas(1, container="tensorflow") for n in range(types)}))
        await world.settle()
        with counted_calls() as calls:
            await world.reconcile()
        return calls.count

    assert await work(80) < 5 * await work(20)


def test_what_pods_say_is_told_in_time_that_grows_with_their_number_not_with_its_square() -> None:
    """A job may have as many types as pods."""

    world = JobWorld(pytorchjob(master=replicas(1)))

    def work(types: int) -> int:
        obj = job_object("TFJob", {f"t{n}": replicas(1, container="tensorflow") for n in range(types)})
        job = parse_job(KINDS["TFJob"], obj)
        pods = [build_pod(job, replica_type, 0) for replica_type in job.replica_specs]
        for pod in pods:
            pod["metadata"]["uid"] = pod["metadata"]["name"]
        return calls_of(lambda: PodWarnings(world).tell(job, pods))

    assert work(160) < 5 * work(40)


async def test_the_work_for_a_pod_does_not_grow_with_the_containers_of_its_job() -> None:
    """Of 10,000 pods all were looked through for each of them."""

    async def work(containers: int) -> int:
        template = {"spec": {"containers": [{"name": f"c{n}", "image": "image"} for n in range(containers)]}}
        workers = {**replicas(50, "ExitCode"), "template": template}
        world = JobWorld(job_object("MPIJob", {"Launcher": replicas(1), "Worker": workers}))
        await world.settle()
        for name in world.names("Pod"):
            world.set_phase(name, "Failed", exit_code=1)
        with counted_calls() as calls:
            await world.reconcile()
        return calls.count

    assert await work(100) < 2 * await work(10)


QUOTA = Forbidden(status=403, reason="Forbidden", message="exceeded quota")


def planned(count: int) -> Plan:
    """Return the plan of a new job of so many workers."""
    world = JobWorld(pytorchjob(worker=replicas(count)))
    job = parse_job(KINDS["PyTorchJob"], world.job)
    now, restarts = datetime(2026, 1, 1, tzinfo=UTC), RestartBackoff(world.clock)
    return plan(observe(job, world.stores), None, now=now, restarts=restarts)


def test_a_plan_holds_the_first_creations_only() -> None:
    """Pods and Services of 10,000 slots would be 20,000, for each of many jobs."""
    large = planned(5000)
    assert (len(large.creates), large.is_partial) == (MOST_CREATIONS, True)
    assert [each.name for each in large.creates[:2]] == ["demo-worker-0", "demo-worker-1"]
    small = planned(MOST_CREATIONS // 2)
    assert (len(small.creates), small.is_partial) == (MOST_CREATIONS, False)


async def test_a_large_job_gets_all_its_pods_one_plan_after_another() -> None:
    """Without waiting between them: it makes progress."""
    world = await JobWorld.settled(pytorchjob(worker=replicas(MOST_CREATIONS + 1)))
    assert len(world.names("Pod")) == len(world.names("Service")) == MOST_CREATIONS + 1


async def test_a_large_job_whose_pods_are_refused_is_not_looked_at_all_the_time() -> None:
    """It has no pods, and yet each look goes through all that it wants."""
    world = JobWorld(pytorchjob(worker=replicas(MANY_PODS)))
    for index in range(MANY_PODS):
        world.refusals[f"create Pod demo-worker-{index}"] = QUOTA
    await world.reconcile()
    tried = len(list(requests_of(world, "create")))
    await world.reconcile()
    outcome = await world.reconcile()
    assert isinstance(outcome, ExpectationsPending)
    assert outcome.seconds == pytest.approx(MANY_PODS * SECONDS_PER_POD)
    assert len(list(requests_of(world, "create"))) == tried
    world.refusals.clear()
    await world.clock.advance(outcome.seconds)
    await world.settle()
    assert len(world.names("Pod")) == MANY_PODS


async def test_a_type_of_less_than_no_replicas_makes_no_large_job_small() -> None:
    """Nobody admits MPIJobs, and one that has pods is not validated again."""
    launcher = replicas(1, container="mpi")
    world = await JobWorld.settled(job_object("MPIJob", {"Launcher": launcher}))
    many, fewer = replicas(MANY_PODS, container="mpi"), replicas(-MANY_PODS, container="mpi")
    world.patch_spec(mpiReplicaSpecs={"Launcher": launcher, "Worker": many, "Other": fewer})
    world.refusals["create Pod demo-worker-0"] = QUOTA
    await world.reconcile()
    assert isinstance(await world.reconcile(), ExpectationsPending)


async def test_a_job_of_more_pods_than_it_may_have_is_looked_at_when_it_is_corrected() -> None:
    """It gets no pods, so its names cost nothing."""
    world = JobWorld(pytorchjob(worker=replicas(2**31 - 1)))
    await world.reconcile()
    assert "10000" in next(each["message"] for each in world.status["conditions"] if each["type"] == "Blocked")
    world.patch_spec(pytorchReplicaSpecs={"Worker": replicas(1)})
    await world.settle()
    assert world.names("Pod") == ["demo-worker-0"]


class CountingExecutor(Executor):
    """Runs at once what it is given, and counts that."""

    count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        future = Future[Any]()
        future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize(("count", "calls"), [(LARGE - 1, 0), (LARGE, 2)])
async def test_large_jobs_are_observed_and_planned_beside_the_event_loop(count: int, calls: int) -> None:
    world = JobWorld(pytorchjob(worker=replicas(count)))
    world.planner = executor = CountingExecutor()
    world.restart()
    world.refusals["create Pod demo-worker-0"] = QUOTA
    await world.reconciler.reconcile(KEY)
    assert executor.count == calls


async def test_a_job_of_many_bytes_is_one_of_many_pods() -> None:
    """A label that is changed again and again had 70,000 containers validated on the event loop each time."""
    job = pytorchjob(worker=replicas(1))
    job["metadata"]["annotations"] = {"padding": "x" * LARGE * BYTES_PER_POD}
    world = JobWorld(job)
    world.planner = executor = CountingExecutor()
    world.restart()
    await world.reconcile()
    outcome = await world.reconcile()
    assert executor.count == 2
    assert isinstance(outcome, ExpectationsPending)
    assert outcome.seconds == pytest.approx(LARGE * SECONDS_PER_POD, rel=0.1)


def test_the_configuration_says_how_many_pods_a_job_may_have() -> None:
    configuration = Configuration(training_operator=TrainingOperator(max_replicas=5))
    kind = next(each for each in job_kinds(configuration) if each.kind == "PyTorchJob")
    assert validate_job(kind, pytorchjob(worker=replicas(5)), None).errors == []
    (error,) = validate_job(kind, pytorchjob(worker=replicas(6)), None).errors
    assert (error.path, error.value) == ("spec.pytorchReplicaSpecs[Worker].replicas", 6)
