"""Jobs of many replicas: what one of them may take from all others."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from typing import Any

import pytest
from support.jobworld import KEY, KINDS, JobWorld, job_object, pytorchjob, replicas, requests_of

from trainmaster.controller.configuration import Configuration
from trainmaster.controller.configuration.types import TrainingOperator
from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.errors import Forbidden
from trainmaster.controller.reconciling.jobs.decider import (
    BYTES_PER_POD,
    LARGE,
    MANY_PODS,
    SECONDS_PER_POD,
)
from trainmaster.controller.reconciling.jobs.objects import MOST_CREATIONS, Plan
from trainmaster.controller.reconciling.jobs.observe import observe
from trainmaster.controller.reconciling.jobs.plan import plan
from trainmaster.controller.reconciling.jobs.replicas import RestartBackoff
from trainmaster.controller.reconciling.outcomes import ExpectationsPending
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.validation import validate_job

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
