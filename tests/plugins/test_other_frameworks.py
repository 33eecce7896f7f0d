"""JAX, XGBoost and PlainML, beyond recorded cases, and the order of plugins and of what they build."""

import random
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generated import check_resolution, runtimes, trainjobs
from support.objects import replicated_job, runtime, trainjob
from support.resolutions import container, env, error_details, field_errors, job_spec, jobset, warning_details

from trainmaster.runtime.api.constants import LAUNCHER, NODE
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.rendezvous import join, rendezvous
from trainmaster.runtime.resolver import resolve

JAX: JsonObject = {"jax": {}}
XGBOOST: JsonObject = {"xgboost": {}}


def test_users_may_replace_the_variables_of_jax() -> None:
    """None is reserved: unlike torchrun, programs read them by themselves or not at all."""
    job = trainjob(trainer={"env": [{"name": "JAX_NUM_PROCESSES", "value": "1"}]})
    assert error_details(job, runtime(policy=JAX)) == []
    assert env(container(jobset(job, runtime(policy=JAX))))["JAX_NUM_PROCESSES"] == "1"


@pytest.mark.defect("U12")
@pytest.mark.parametrize("policy", [JAX, XGBOOST])
def test_a_process_count_that_changes_nothing_is_warned_about(policy: JsonObject) -> None:
    """It was ignored without a word."""
    job = trainjob(trainer={"numProcPerNode": 2})
    ((path, message),) = warning_details(job, runtime(policy=policy))
    assert path == "spec.trainer.numProcPerNode"
    assert "ignored" in message
    assert warning_details(job, runtime(policy={"torch": {}})) == []


@pytest.mark.defect("B5")
@pytest.mark.parametrize(
    ("trainer", "limits", "workers"),
    [
        ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}, {}, "8"),
        ({"numNodes": 1, "numProcPerNode": 7}, {"nvidia.com/gpu": 4}, "4"),
        ({}, {"cpu": 4}, "2"),
        # B5: they did not count any more when the TrainJob set anything else.
        ({"resourcesPerNode": {"limits": {"memory": "1Gi"}}}, {"nvidia.com/gpu": 4}, "8"),
    ],
)
def test_each_gpu_has_a_worker_of_xgboost(trainer: JsonObject, limits: JsonObject, workers: str) -> None:
    node = {"name": "node", "image": "i", "resources": {"limits": limits}}
    on = runtime(replicated_job(containers=[node]), policy={"numNodes": 2, **XGBOOST})
    assert env(container(jobset(trainjob(trainer=trainer), on)))["DMLC_NUM_WORKER"] == workers


def test_reserved_variables_of_xgboost_are_forbidden_one_by_one_and_to_nobody_else() -> None:
    names = ["DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"]
    job = trainjob(trainer={"env": [{"name": name, "value": "1"} for name in ("A", *names)]})
    assert [(error.path, error.detail, error.type) for error in field_errors(job, runtime(policy=XGBOOST))] == [
        (f"spec.trainer.env[{place}]", f"{name} is reserved for the XGBoost runtime", "Forbidden")
        for place, name in enumerate(names, start=1)
    ]
    assert field_errors(job, runtime(policy={"torch": {}})) == field_errors(job, runtime()) == []


def test_a_framework_of_others_may_meet_at_a_port_of_its_own() -> None:
    class Ray:
        name = "ray"

        def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
            meeting = rendezvous(info, job)
            assert meeting is not None
            join(info, job, replace(meeting, port=6379), [], rank="RAY_RANK")

    built = resolve(trainjob(), runtime(), Framework([Ray(), *load_plugins()])).objects
    [found] = [each.object for each in built if each.identity[1] == "JobSet"]
    assert container(found)["ports"] == [{"containerPort": 6379}]


def test_only_the_trainer_has_nodes() -> None:
    on = runtime(replicated_job("aux", ancestor=None), replicated_job())
    result = jobset(trainjob(trainer={"numNodes": 3}), on)
    assert [job_spec(result, index)["parallelism"] for index in range(2)] == [1, 3]


@pytest.mark.parametrize(
    "policy",
    [{"torch": {}}, {"mpi": {"mpiImplementation": "OpenMPI", "runLauncherAsNode": True}}, JAX, XGBOOST, {"flux": {}}],
    ids=lambda policy: next(iter(policy)),
)
@pytest.mark.parametrize("trainer", [None, {"numNodes": 1}, {"numNodes": 3}])
def test_plainml_changes_nothing_where_a_framework_sets_nodes(policy: JsonObject, trainer: JsonObject | None) -> None:
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


POLICIES: st.SearchStrategy[JsonObject | None] = st.sampled_from([None, {}, {"jax": {}}, {"xgboost": {}}, {"flux": {}}])


@given(trainjobs(), runtimes(POLICIES))
def test_resolving_is_pure(job: JsonObject, on: JsonObject) -> None:
    check_resolution(job, on)


_MPI = runtime(
    replicated_job(LAUNCHER, containers=[{"name": NODE, "image": "train:1"}]),
    replicated_job(NODE, ancestor=None),
    policy={"mpi": {"mpiImplementation": "OpenMPI", "runLauncherAsNode": True}},
)
_TORCH = runtime(policy={"torch": {}, "numNodes": 2})


@pytest.mark.defect("B28")
@pytest.mark.parametrize("on", [_MPI, _TORCH], ids=["mpi", "torch"])
def test_the_order_in_which_plugins_are_found_changes_nothing(on: object) -> None:
    """But for the random keys in Secrets, every process builds the same bytes."""
    built = set()
    for seed in range(10):
        plugins = list(load_plugins())
        random.Random(seed).shuffle(plugins)
        objects = resolve(trainjob(), on, Framework(plugins)).objects  # type: ignore[arg-type]
        built.add(orjson.dumps([each.object for each in objects if each.identity[1] != "Secret"]))
    assert len(built) == 1


@pytest.mark.defect("B28")
def test_what_pods_mount_comes_before_the_pods() -> None:
    kinds = [desired.identity[1] for desired in resolve(trainjob(), _MPI, Framework(load_plugins())).objects]
    assert sorted(kinds) == ["ConfigMap", "JobSet", "Secret"]
    assert kinds[-1] == "JobSet"
