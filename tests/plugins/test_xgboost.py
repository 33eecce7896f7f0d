"""XGBoost: the environment of its tracker and workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import container, env, field_errors, jobset

from trainmaster.runtime.jsontree import JsonObject

XGBOOST: JsonObject = {"xgboost": {}}


def workers(trainer: JsonObject, runtimes: JsonObject) -> str:
    node = {"name": "node", "image": "i", "resources": runtimes}
    on = runtime(replicated_job(containers=[node]), policy={"numNodes": 2, **XGBOOST})
    count: str = env(container(jobset(trainjob(trainer=trainer), on)))["DMLC_NUM_WORKER"]
    return count


def test_each_gpu_has_a_worker() -> None:
    assert workers({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}, {}) == "8"
    assert workers({"numNodes": 1, "numProcPerNode": 7}, {"limits": {"nvidia.com/gpu": 4}}) == "4"
    assert workers({}, {"limits": {"cpu": 4}}) == "2"


@pytest.mark.defect("B5")
def test_the_runtimes_gpus_count_beside_the_trainjobs_memory() -> None:
    """They did not count any more when the TrainJob set anything else."""
    assert workers({"resourcesPerNode": {"limits": {"memory": "1Gi"}}}, {"limits": {"nvidia.com/gpu": 4}}) == "8"


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
