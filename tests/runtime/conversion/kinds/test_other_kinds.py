"""XGBoostJobs, PaddleJobs, JAXJobs and TFJobs: which pods are the same, and when a job has ended.

What their pods see is that of V1: `test_training_operator.py`.
"""

from __future__ import annotations

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
)

from trainmaster.runtime.conversion.notes import Conversion, ConversionError
from trainmaster.runtime.jsontree import JsonObject


def test_xgboost_nodes_of_one_trainer() -> None:
    kind = "XGBoostJob"
    conversion = convert_job(job(kind, {"Master": replicas(kind), "Worker": replicas(kind, 2)}))
    assert runtime_of(conversion)["mlPolicy"] == {"numNodes": 3, "xgboost": {}}
    assert job_spec(conversion)["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}


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
