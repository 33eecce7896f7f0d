"""PyTorchJobs and other kinds: which pods are nodes of one trainer, their variables, and when a job has ended."""

import json
from typing import Any

import pytest
from support.conversions import (
    built,
    convert_job,
    environment,
    groups_of,
    job,
    job_spec,
    lost,
    pods,
    replicas,
    runtime_of,
    told,
    trainjob_of,
)

from trainmaster.runtime.conversion.notes import Conversion, ConversionError
from trainmaster.runtime.jsontree import JsonObject

KIND = "PyTorchJob"


def converted(master: JsonObject | None, worker: JsonObject | None, **spec: Any) -> Conversion:
    types = {name: each for name, each in (("Master", master), ("Worker", worker)) if each}
    return convert_job(job(KIND, types, **spec))


def seen(conversion: Conversion) -> dict[str, dict[str, str]]:
    return {host: environment(pod["containers"][0], fields) for host, pod, fields in pods(built(conversion))}


@pytest.mark.parametrize(("kind", "policy"), [(KIND, "torch"), ("XGBoostJob", "xgboost")])
def test_master_and_workers_alike_are_nodes_of_one_trainer(kind: str, policy: str) -> None:
    conversion = convert_job(job(kind, {"Master": replicas(kind), "Worker": replicas(kind, 3)}))
    assert trainjob_of(conversion)["trainer"]["numNodes"] == 4
    assert runtime_of(conversion)["mlPolicy"] == {"numNodes": 4, policy: {}}
    assert job_spec(conversion)["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    ranks = {host: each["RANK"] for host, each in seen(conversion).items()}
    assert ranks == {f"demo-node-0-{rank}.demo": str(rank) for rank in range(4)}


@pytest.mark.parametrize(
    "difference", [{"args": ["--master"]}, {"policy": "Never"}, {"pod": {"nodeSelector": {"a": "b"}}}]
)
def test_a_master_of_its_own_kind_is_a_job_of_its_own(difference: JsonObject) -> None:
    conversion = converted(replicas(KIND, **difference), replicas(KIND, 2))
    assert "trainer" not in trainjob_of(conversion)
    assert [(name, each["replicas"]) for name, each in groups_of(conversion).items()] == [("master", 1), ("worker", 2)]
    assert runtime_of(conversion)["template"]["spec"]["successPolicy"] == {
        "operator": "All",
        "targetReplicatedJobs": ["master"],
    }
    ranks = {host: (each["RANK"], each["PET_NODE_RANK"]) for host, each in seen(conversion).items()}
    assert ranks == {
        "demo-master-0-0.demo": ("0", "0"),
        "demo-worker-0-0.demo": ("1", "1"),
        "demo-worker-1-0.demo": ("2", "2"),
    }
    assert {each["PET_MASTER_PORT"] for each in seen(conversion).values()} == {"23456"}


def test_a_master_alone_and_workers_alone() -> None:
    assert "successPolicy" not in job_spec(converted(replicas(KIND), None))
    workers = converted(None, replicas(KIND, 2))
    assert "successPolicy" not in job_spec(workers)
    # V1 gives workers without a master no address; the policy does.
    (first, _) = seen(workers).values()
    assert "MASTER_ADDR" not in first
    assert first["PET_MASTER_ADDR"] == "demo-node-0-0.demo"


@pytest.mark.parametrize(
    ("given", "policy", "trainer"),
    [
        (None, {}, None),
        ("auto", {}, None),
        ("gpu", {"numProcPerNode": "gpu"}, None),
        ("cpu", {"numProcPerNode": "cpu"}, None),
        ("3", {}, 3),
    ],
)
def test_processes(given: str | None, policy: JsonObject, trainer: int | None) -> None:
    spec = {} if given is None else {"nprocPerNode": given}
    conversion = converted(replicas(KIND), replicas(KIND, 1), **spec)
    assert runtime_of(conversion)["mlPolicy"]["torch"] == policy
    assert trainjob_of(conversion)["trainer"].get("numProcPerNode") == trainer
    assert {each["WORLD_SIZE"] for each in seen(conversion).values()} == {str(2 * (trainer or 1))}
    assert ("spec.nprocPerNode" in told(conversion)) == (given == "auto")


def test_variables_of_torchrun_that_the_user_sets_stay() -> None:
    """V1 sets no rendezvous for workers without a master; the policy would refuse the user's."""
    env = [{"name": "PET_MASTER_ADDR", "value": "elsewhere"}]
    conversion = converted(None, replicas(KIND, 2, env=env))
    assert "torch" not in runtime_of(conversion)["mlPolicy"]
    assert {each["PET_MASTER_ADDR"] for each in seen(conversion).values()} == {"elsewhere"}


def test_variables_of_torchrun_that_v1_sets_are_left_out_of_the_users() -> None:
    env = [{"name": "PET_NODE_RANK", "value": "7"}, {"name": "MASTER_ADDR", "value": "x"}, {"name": "A", "value": "1"}]
    conversion = converted(replicas(KIND, env=env), None)
    assert trainjob_of(conversion)["trainer"]["env"] == [{"name": "A", "value": "1"}]
    path = "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].env"
    assert {f"{path}[0]", f"{path}[1]"} <= set(told(conversion))


def test_sidecars_get_the_variables_too() -> None:
    template = replicas(KIND)
    template["template"]["spec"]["containers"].append({"name": "side", "image": "a"})
    conversion = converted(template, None)
    assert runtime_of(conversion)["mlPolicy"]["torch"] == {
        "envInjection": {"targets": [{"jobName": "node", "containerNames": ["side"]}]}
    }
    ((_, pod, fields),) = pods(built(conversion))
    side = environment(pod["containers"][1], fields)
    assert (side["MASTER_ADDR"], side["PET_NNODES"]) == ("demo-node-0-0.demo", "1")


def test_an_elastic_job_keeps_its_variables_and_its_number_of_workers() -> None:
    policy = {"minReplicas": 1, "rdzvBackend": "etcd-v2", "maxRestarts": 5, "metrics": [{"type": "Resource"}]}
    conversion = converted(None, replicas(KIND, 2), elasticPolicy=policy)
    assert runtime_of(conversion)["mlPolicy"] == {"numNodes": 2}
    # V1: one worker that succeeds is enough.
    assert job_spec(conversion)["successPolicy"] == {"rules": [{"succeededCount": 1}]}
    assert lost(conversion) == ["spec.elasticPolicy.metrics"]


def test_an_empty_rendezvous_configuration_is_none() -> None:
    """V1 crashes on it."""
    assert "PET_RDZV_CONF" not in str(converted(None, replicas(KIND), elasticPolicy={"rdzvConf": []}).objects)


@pytest.mark.parametrize(
    ("types", "spec", "path"),
    [
        ({"Master": replicas(KIND, 2)}, {}, "spec.pytorchReplicaSpecs.Master.replicas"),
        ({"Master": replicas(KIND)}, {"elasticPolicy": {}}, "spec.pytorchReplicaSpecs.Worker"),
        ({"Worker": replicas(KIND)}, {"elasticPolicy": {"minReplicas": "1"}}, "spec.elasticPolicy.minReplicas"),
        (
            {"Worker": replicas(KIND)},
            {"elasticPolicy": {"rdzvConf": [{"key": "a"}]}},
            "spec.elasticPolicy.rdzvConf[0].value",
        ),
        ({"Worker": replicas(KIND)}, {"nprocPerNode": 2}, "spec.nprocPerNode"),
    ],
)
def test_odd_jobs_are_refused(types: JsonObject, spec: JsonObject, path: str) -> None:
    with pytest.raises(ConversionError) as caught:
        convert_job(job(KIND, types, **spec))
    assert caught.value.problems[0][0] == path


def test_permanent_exit_codes_are_those_of_the_container_that_trains() -> None:
    kind = "XGBoostJob"
    types = {"Master": replicas(kind, args=["m"]), "Worker": replicas(kind, 2, policy="ExitCode")}
    (rule,) = job_spec(convert_job(job(kind, types)), "worker")["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == "xgboost"


@pytest.mark.parametrize(
    ("kind", "types", "groups", "targets"),
    [
        ("XGBoostJob", {"Master": 1, "Worker": 2}, ["master", "worker"], ["master"]),
        ("PaddleJob", {"Worker": 3}, ["master", "worker"], None),  # all of them have to succeed
        ("PaddleJob", {"Master": 2, "Worker": 2}, ["master", "server", "worker"], ["master", "server"]),
        (
            "TFJob",
            {"Chief": 1, "PS": 1, "Worker": 2, "Evaluator": 1},
            ["chief", "evaluator", "ps", "worker"],
            ["chief"],
        ),
        ("TFJob", {"Worker": 2}, ["node"], None),
    ],
)
def test_each_type_is_a_replicated_job_and_some_decide(
    kind: str, types: dict[str, int], groups: list[str], targets: list[str] | None
) -> None:
    # Each type has its own arguments, so that it is none of the nodes of a trainer.
    made = {type_: replicas(kind, count, args=[type_]) for type_, count in types.items()}
    conversion = convert_job(job(kind, made))
    assert sorted(groups_of(conversion)) == groups
    policy = runtime_of(conversion)["template"]["spec"].get("successPolicy")
    assert (policy and policy["targetReplicatedJobs"]) == targets


def test_an_elastic_policy_of_paddle_is_told() -> None:
    worker = {"Worker": replicas("PaddleJob", 3)}
    conversion = convert_job(job("PaddleJob", worker, elasticPolicy={"minReplicas": 1}))
    assert "spec.elasticPolicy.minReplicas" in told(conversion)


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({}, {"rules": [{"succeededIndexes": "0"}]}),
        ({"successPolicy": ""}, {"rules": [{"succeededIndexes": "0"}]}),
        ({"successPolicy": "AllWorkers"}, None),
    ],
)
def test_without_a_chief_the_first_worker_decides_or_all_do(spec: JsonObject, policy: Any) -> None:
    conversion = convert_job(job("TFJob", {"PS": replicas("TFJob"), "Worker": replicas("TFJob", 2)}, **spec))
    assert job_spec(conversion, "worker").get("successPolicy") == policy
    assert "successPolicy" not in job_spec(conversion, "ps")
    assert runtime_of(conversion)["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["worker"]


def test_dynamic_workers_are_lost() -> None:
    types = {"PS": replicas("TFJob", 2), "Worker": replicas("TFJob", 2)}
    assert lost(convert_job(job("TFJob", types, enableDynamicWorker=True))) == ["spec.enableDynamicWorker"]


def first_seen(conversion: Conversion) -> dict[str, str]:
    _, pod, fields = next(pods(built(conversion)))
    return environment(pod["containers"][0], fields)


def test_a_port_of_ones_own() -> None:
    worker = replicas("TFJob", 2, ports=[{"name": "tfjob-port", "containerPort": 7}])
    seen = first_seen(convert_job(job("TFJob", {"worker": worker, "ps": replicas("TFJob")})))
    assert json.loads(seen["TF_CONFIG"])["cluster"] == {
        "ps": ["demo-ps-0-0.demo:2222"],
        "worker": ["demo-worker-0-0.demo:7", "demo-worker-0-1.demo:7"],
    }
    worker = replicas("JAXJob", 2, ports=[{"name": "jaxjob-port", "containerPort": 7}])
    conversion = convert_job(job("JAXJob", {"Worker": worker}))
    seen = first_seen(conversion)
    assert (seen["COORDINATOR_PORT"], seen["JAX_COORDINATOR_ADDRESS"]) == ("7", "demo-node-0-0.demo:29500")
    assert "successPolicy" not in job_spec(conversion)


def test_odd_tfjobs_are_refused() -> None:
    with pytest.raises(ConversionError, match="Chief or Master"):
        convert_job(job("TFJob", {"Chief": replicas("TFJob"), "Master": replicas("TFJob")}))
    with pytest.raises(ConversionError, match="neither empty nor AllWorkers"):
        convert_job(job("TFJob", {"Worker": replicas("TFJob")}, successPolicy="Some"))
