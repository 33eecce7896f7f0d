"""XGBoost: the environment of its tracker and workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import RANK, container, env, field_errors, job_spec, jobset

from trainmaster.runtime.jsontree import JsonObject

XGBOOST: JsonObject = {"xgboost": {}}


def workers(trainer: JsonObject | None, runtimes: JsonObject) -> str:
    node = {"name": "node", "image": "i", "resources": runtimes}
    job = trainjob(trainer=trainer) if trainer is not None else trainjob()
    on = runtime(replicated_job(containers=[node]), policy={"numNodes": 2, **XGBOOST})
    count: str = env(container(jobset(job, on)))["DMLC_NUM_WORKER"]
    return count


def test_the_workers_find_the_tracker() -> None:
    trainer = {"numNodes": 3, "env": [{"name": "A", "value": "1"}]}
    result = jobset(trainjob(trainer=trainer), runtime(policy=XGBOOST))
    assert env(container(result)) == {
        "A": "1",
        "DMLC_TRACKER_URI": "demo-node-0-0.demo",
        "DMLC_TRACKER_PORT": "29500",
        "DMLC_TASK_ID": RANK,
        "DMLC_NUM_WORKER": "3",
    }
    assert container(result)["ports"] == [{"containerPort": 29500}]
    assert job_spec(result)["parallelism"] == 3


def test_each_gpu_has_a_worker() -> None:
    assert workers({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}, {}) == "8"
    assert workers({"numNodes": 1, "numProcPerNode": 7}, {"limits": {"nvidia.com/gpu": 4}}) == "4"
    assert workers({}, {"limits": {"cpu": 4}}) == "2"


@pytest.mark.defect("B3")
def test_the_environment_is_there_without_a_trainer() -> None:
    """Nothing was injected although the runtime may have several nodes."""
    assert workers(None, {}) == "2"


@pytest.mark.defect("B5")
def test_the_runtimes_gpus_count_beside_the_trainjobs_memory() -> None:
    """They did not count any more when the TrainJob set anything else."""
    assert workers({"resourcesPerNode": {"limits": {"memory": "1Gi"}}}, {"limits": {"nvidia.com/gpu": 4}}) == "8"


@pytest.mark.defect("B19")
def test_the_tracker_is_beside_the_trainer_whatever_it_is_called() -> None:
    on = runtime(replicated_job("workers"), policy=XGBOOST, network={"subdomain": "mesh"})
    assert env(container(jobset(trainjob(), on)))["DMLC_TRACKER_URI"] == "demo-workers-0-0.mesh"


@pytest.mark.parametrize("name", ["DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"])
def test_reserved_variables_are_forbidden_one_by_one(name: str) -> None:
    variables = [{"name": "A", "value": "1"}, {"name": name, "value": "1"}]
    (error,) = field_errors(trainjob(trainer={"env": variables}), runtime(policy=XGBOOST))
    assert error.path == "spec.trainer.env[1]"
    assert error.detail == f"{name} is reserved for the XGBoost runtime"
    assert error.type == "Forbidden"


def test_other_policies_do_not_reserve_them() -> None:
    job = trainjob(trainer={"env": [{"name": "DMLC_TASK_ID", "value": "1"}]})
    assert field_errors(job, runtime(policy={"torch": {}})) == field_errors(job, runtime()) == []


@given(trainjobs(), runtimes(st.fixed_dictionaries({"xgboost": st.just({})})))
def test_resolving_is_pure(job: JsonObject, on: JsonObject) -> None:
    check_resolution(job, on)
