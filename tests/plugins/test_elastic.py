"""Elastic TrainJobs: the environment of their nodes, the quorum of their gang, and which sizes are refused."""

import pytest
from support.objects import replicated_job, runtime, runtime_object, trainjob, trainjob_object
from support.resolutions import (
    FRAMEWORK,
    FakeListers,
    companion,
    container,
    env,
    error_details,
    job_spec,
    jobset,
    warning_details,
)

from trainmaster.runtime.api.decoding import parse_runtime
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.validation.trainjob import validate_trainjob

POLICY = {"elasticPolicy": {"minNodes": 2, "maxNodes": 4, "maxRestarts": 3}}
ELASTIC: JsonObject = {"torch": POLICY, "numNodes": 2}


def problems(spec: JsonObject, policy: JsonObject, old: JsonObject | None = None) -> list[str]:
    on = runtime_object(policy=policy)
    result = validate_trainjob(
        trainjob_object(**spec),
        None if old is None else trainjob_object(**old),
        framework=FRAMEWORK,
        listers=FakeListers(on),
    )
    return [str(each) for each in result.errors]


def test_nodes_agree_on_their_number_and_ranks_at_the_first_pod() -> None:
    side = [{"name": name, "image": "i"} for name in ("node", "side")]
    on = runtime(
        replicated_job(containers=side),
        policy={"torch": {**POLICY, "envInjection": {"targets": [{"jobName": "node", "containerNames": ["side"]}]}}},
    )
    two, four = (jobset(trainjob(trainer={"numNodes": nodes}), on) for nodes in (2, 4))
    rendezvous = {
        "PET_NNODES": "2:4",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "demo-node-0-0.demo:29500",
        "PET_RDZV_ID": "demo",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "PET_MAX_RESTARTS": "3",
    }
    assert env(container(two)) == env(container(two, index=1)) == rendezvous
    assert container(two)["ports"] == [{"containerPort": 29500}]
    assert [job_spec(each)["parallelism"] for each in (two, four)] == [2, 4]
    job_spec(four).update(parallelism=2, completions=2)
    assert four == two, "only then a JobSet may change its size in place"


def test_a_trainjob_overrides_limits_field_by_field() -> None:
    job = trainjob(trainer={"numNodes": 1, "elasticPolicy": {"minNodes": 1}})
    assert env(container(jobset(job, runtime(policy=ELASTIC))))["PET_NNODES"] == "1:4"


def test_a_gang_starts_with_the_fewest_nodes() -> None:
    on = runtime_object(policy=ELASTIC)
    on["spec"]["podGroupPolicy"] = {"coscheduling": {}}
    group = companion("PodGroup", trainjob(trainer={"numNodes": 4}), parse_runtime(on)).object
    assert group["spec"]["minMember"] == 2


LIMITS = "must be between 2 and 4, the limits of elasticPolicy"


@pytest.mark.parametrize(
    ("trainer", "policy", "path", "detail"),
    [
        ({"numNodes": 1}, ELASTIC, "spec.trainer.numNodes", LIMITS),
        ({"numNodes": 5}, ELASTIC, "spec.trainer.numNodes", LIMITS),
        ({"numNodes": 0}, ELASTIC, "spec.trainer.numNodes", "must be greater than or equal to 1"),
        ({"elasticPolicy": {"minNodes": 5}}, ELASTIC, "spec.trainer.elasticPolicy.minNodes", "at most maxNodes"),
        ({"elasticPolicy": {"maxNodes": 2}}, {"jax": {}}, "spec.trainer.elasticPolicy", "no mlPolicy.torch"),
        (
            {"env": [{"name": "PET_RDZV_ID", "value": "mine"}]},
            ELASTIC,
            "spec.trainer.env",
            "invalid envs configured: [PET_RDZV_ID]",
        ),
        ({"command": ["tune", "run"]}, ELASTIC, "spec.trainer.command", "torchtune trains on a fixed number"),
    ],
)
def test_what_cannot_be_elastic_is_refused(trainer: JsonObject, policy: JsonObject, path: str, detail: str) -> None:
    assert any(each.startswith(f"{path}: ") and detail in each for each in problems({"trainer": trainer}, policy))


@pytest.mark.parametrize(
    ("on", "told"),
    [
        (runtime_object(replicated_job(replicas=2), policy=ELASTIC), "a trainer of several slices has a fixed size"),
        (runtime_object(policy=ELASTIC, network={"enableDNSHostnames": False}), "nodes meet by host names"),
    ],
)
def test_which_runtimes_cannot_be_elastic(on: JsonObject, told: str) -> None:
    job = trainjob_object(trainer={"numNodes": 2})
    assert told in validate_trainjob(job, None, framework=FRAMEWORK, listers=FakeListers(on)).message


def test_a_command_that_fixes_the_size_is_warned_about() -> None:
    job = trainjob(trainer={"command": ["torchrun", "--nnodes=2", "train.py"]})
    [(path, detail)] = warning_details(job, runtime(policy=ELASTIC))
    assert (path, detail.split()[0]) == ("spec.trainer.command", "--nnodes")
    assert error_details(job, runtime(policy=ELASTIC)) == []


@pytest.mark.parametrize(
    ("policy", "new", "told"),
    [
        (ELASTIC, {"numNodes": 3}, ""),
        (ELASTIC, {"numNodes": 5}, LIMITS),
        (ELASTIC, {}, "field is immutable"),
        ({"torch": {}}, {"numNodes": 3}, "field is immutable"),
    ],
)
@pytest.mark.parametrize("suspend", [False, True])
def test_the_number_of_nodes_has_limits(policy: JsonObject, new: JsonObject, told: str, suspend: bool) -> None:
    old = {"trainer": {"numNodes": 2}, "suspend": suspend}
    assert told in " ".join(problems({**old, "trainer": new}, policy, old) or [""])
    if not told:
        assert problems({**old, "trainer": new}, policy, old) == []
