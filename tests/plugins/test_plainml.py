"""PlainML: runtimes without a framework of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import job_spec, jobset

from trainmaster.runtime.api.constants import LAUNCHER, NODE
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resolver import resolve


def test_only_the_trainer_has_nodes() -> None:
    on = runtime(replicated_job("aux", ancestor=None), replicated_job())
    result = jobset(trainjob(trainer={"numNodes": 3}), on)
    assert [job_spec(result, index)["parallelism"] for index in range(2)] == [1, 3]


@pytest.mark.parametrize(
    "policy",
    [
        {"torch": {}},
        {"mpi": {"mpiImplementation": "OpenMPI", "runLauncherAsNode": True}},
        {"jax": {}},
        {"xgboost": {}},
        {"flux": {}},
    ],
    ids=lambda policy: next(iter(policy)),
)
@pytest.mark.parametrize("trainer", [None, {}, {"numNodes": 1}, {"numNodes": 3}])
def test_it_changes_nothing_where_a_framework_sets_the_number_of_nodes(
    policy: JsonObject, trainer: JsonObject | None
) -> None:
    """The frameworks that it leaves alone, and those beside which it is active as in the original."""
    launcher = replicated_job(LAUNCHER, containers=[{"name": NODE, "image": "train:1"}])
    jobs = (launcher, replicated_job(NODE, ancestor=None)) if "mpi" in policy else (replicated_job(),)
    on = runtime(*jobs, policy={**policy, "numNodes": 2})
    plugins = load_plugins()
    built = [
        [each.object for each in resolve(trainjob(trainer=trainer), on, Framework(chosen)).objects]
        for chosen in (plugins, [plugin for plugin in plugins if plugin.name != "plainml"])
    ]
    with_it, without_it = ([obj for obj in objects if obj["kind"] != "Secret"] for objects in built)
    assert with_it == without_it
    assert any(obj["kind"] == "JobSet" for obj in with_it)


@given(trainjobs(), runtimes(st.one_of(st.none(), st.builds(dict))))
def test_resolving_is_pure(job: JsonObject, on: JsonObject) -> None:
    check_resolution(job, on)
