"""PlainML: runtimes without a framework of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import container, env, job_spec, jobset

from trainmaster.runtime.jsontree import JsonObject


@pytest.mark.parametrize(
    ("policy", "trainer", "nodes"),
    [
        (None, {"numNodes": 3}, 3),
        ({"numNodes": 2}, {"numNodes": 3}, 3),
        ({"numNodes": 2}, {}, 2),
        ({}, {}, 1),
        (None, {"numNodes": 0}, 0),
    ],
)
def test_the_trainjob_says_how_many_nodes(policy: JsonObject | None, trainer: JsonObject, nodes: int) -> None:
    result = jobset(trainjob(trainer=trainer), runtime(policy=policy))
    assert job_spec(result)["parallelism"] == job_spec(result)["completions"] == nodes


def test_only_the_trainer_has_nodes() -> None:
    on = runtime(replicated_job("aux", ancestor=None), replicated_job())
    result = jobset(trainjob(trainer={"numNodes": 3}), on)
    assert [job_spec(result, index)["parallelism"] for index in range(2)] == [1, 3]


def test_nothing_but_the_users_variables_is_injected() -> None:
    result = jobset(trainjob(trainer={"env": [{"name": "A", "value": "1"}]}), runtime(policy={"numNodes": 2}))
    assert env(container(result)) == {"A": "1"}
    assert "ports" not in container(result)


@given(trainjobs(), runtimes(st.one_of(st.none(), st.builds(dict))))
def test_resolving_is_pure(job: JsonObject, on: JsonObject) -> None:
    check_resolution(job, on)
