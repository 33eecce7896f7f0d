"""JAX: the environment of its distributed service."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import RANK, container, env, error_details, job_spec, jobset, warning_details

from trainmaster.runtime.jsontree import JsonObject

JAX: JsonObject = {"jax": {}}


def test_every_node_runs_one_process() -> None:
    """GPUs do not matter: a process drives all devices of its node."""
    trainer = {"numNodes": 3, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    result = jobset(trainjob(trainer=trainer), runtime(policy=JAX))
    assert list(env(container(result)).items()) == [
        ("JAX_NUM_PROCESSES", "3"),
        ("JAX_PROCESS_ID", RANK),
        ("JAX_COORDINATOR_ADDRESS", "demo-node-0-0.demo:29500"),
    ]
    assert container(result)["ports"] == [{"containerPort": 29500}]
    assert job_spec(result)["parallelism"] == 3


@pytest.mark.defect("B3")
def test_the_environment_is_there_without_a_trainer() -> None:
    """Nothing was injected although the runtime may have several nodes."""
    result = jobset(trainjob(), runtime(policy={"numNodes": 4, **JAX}))
    assert env(container(result))["JAX_NUM_PROCESSES"] == "4"
    assert container(result)["ports"] == [{"containerPort": 29500}]


@pytest.mark.defect("B19")
def test_the_coordinator_is_the_trainer_whatever_it_is_called() -> None:
    on = runtime(replicated_job("workers"), policy=JAX, network={"subdomain": "mesh"})
    assert env(container(jobset(trainjob(), on)))["JAX_COORDINATOR_ADDRESS"] == "demo-workers-0-0.mesh:29500"


def test_users_may_replace_the_variables() -> None:
    """None is reserved: unlike torchrun, programs read them by themselves or not at all."""
    job = trainjob(trainer={"env": [{"name": "JAX_NUM_PROCESSES", "value": "1"}]})
    assert error_details(job, runtime(policy=JAX)) == []
    assert env(container(jobset(job, runtime(policy=JAX))))["JAX_NUM_PROCESSES"] == "1"


@pytest.mark.defect("U12")
@pytest.mark.parametrize("policy", ["jax", "xgboost"])
def test_a_process_count_that_changes_nothing_is_warned_about(policy: str) -> None:
    """It was ignored without a word."""
    job = trainjob(trainer={"numProcPerNode": 2})
    ((path, message),) = warning_details(job, runtime(policy={policy: {}}))
    assert path == "spec.trainer.numProcPerNode"
    assert "ignored" in message
    assert warning_details(job, runtime(policy={"torch": {}})) == []


def test_a_runtime_without_a_trainer_is_left_alone() -> None:
    result = jobset(trainjob(trainer={"numNodes": 2}), runtime(replicated_job(ancestor=None), policy=JAX))
    assert env(container(result)) == {}


@given(trainjobs(), runtimes(st.fixed_dictionaries({"jax": st.just({})})))
def test_resolving_is_pure(job: JsonObject, on: JsonObject) -> None:
    check_resolution(job, on)
