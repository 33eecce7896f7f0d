"""JAX: the environment of its distributed service."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.objects import runtime, trainjob
from support.resolutions import container, env, error_details, jobset, warning_details

from trainmaster.runtime.jsontree import JsonObject

JAX: JsonObject = {"jax": {}}


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


@given(trainjobs(), runtimes(st.fixed_dictionaries({"jax": st.just({})})))
def test_resolving_is_pure(job: JsonObject, on: JsonObject) -> None:
    check_resolution(job, on)
