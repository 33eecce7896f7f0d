"""XGBoostJobs, PaddleJobs, JAXJobs and TFJobs: which pods are the same, what they see, and when a job has ended."""

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


def seen(conversion: Conversion, name: str) -> dict[str, str | None]:
    return {host: environment(pod["containers"][0], fields).get(name) for host, pod, fields in pods(built(conversion))}


def test_xgboost_nodes_of_one_trainer() -> None:
    kind = "XGBoostJob"
    conversion = convert_job(job(kind, {"Master": replicas(kind), "Worker": replicas(kind, 2)}))
    assert runtime_of(conversion)["mlPolicy"] == {"numNodes": 3, "xgboost": {}}
    assert set(seen(conversion, "WORKER_ADDRS").values()) == {"demo-node-0-1.demo,demo-node-0-2.demo"}
    assert list(seen(conversion, "DMLC_TASK_ID").values()) == list(seen(conversion, "RANK").values()) == ["0", "1", "2"]
    assert job_spec(conversion)["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}


def test_xgboost_with_a_master_of_its_own_kind() -> None:
    kind = "XGBoostJob"
    types = {"Master": replicas(kind, args=["m"]), "Worker": replicas(kind, 2, policy="ExitCode")}
    conversion = convert_job(job(kind, types))
    assert seen(conversion, "RANK") == {
        "demo-master-0-0.demo": "0",
        "demo-worker-0-0.demo": "1",
        "demo-worker-1-0.demo": "2",
    }
    assert set(seen(conversion, "WORKER_ADDRS").values()) == {"demo-worker-0-0.demo,demo-worker-1-0.demo"}
    assert runtime_of(conversion)["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["master"]
    (rule,) = job_spec(conversion, "worker")["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == "xgboost"


def test_paddle_workers_meet_at_the_first() -> None:
    kind = "PaddleJob"
    conversion = convert_job(job(kind, {"Worker": replicas(kind, 3)}, elasticPolicy={"minReplicas": 1}))
    assert {name: each["template"]["spec"]["parallelism"] for name, each in groups_of(conversion).items()} == {
        "master": 1,
        "worker": 2,
    }
    assert seen(conversion, "PADDLE_MASTER") == {
        "demo-master-0-0.demo": "POD_IP:36543",
        "demo-worker-0-0.demo": "demo-master-0-0.demo:36543",
        "demo-worker-0-1.demo": "demo-master-0-0.demo:36543",
    }
    # All of them have to succeed.
    assert "successPolicy" not in runtime_of(conversion)["template"]["spec"]
    assert "spec.elasticPolicy.minReplicas" in told(conversion)


def test_paddle_with_servers() -> None:
    kind = "PaddleJob"
    conversion = convert_job(job(kind, {"Master": replicas(kind, 2), "Worker": replicas(kind, 2)}))
    assert seen(conversion, "PADDLE_MASTER") == {
        "demo-master-0-0.demo": "POD_IP:36543",
        "demo-server-0-0.demo": "demo-master-0-0.demo:36543",
        "demo-worker-0-0.demo": "demo-master-0-0.demo:36543",
        "demo-worker-0-1.demo": "demo-master-0-0.demo:36543",
    }
    assert [value for value in seen(conversion, "PADDLE_SERVER_NUM").values() if value] == ["1", "1"]
    assert [value for value in seen(conversion, "PADDLE_TRAINER_NUM").values() if value] == ["1", "1"]
    targets = runtime_of(conversion)["template"]["spec"]["successPolicy"]["targetReplicatedJobs"]
    assert targets == ["master", "server"]


def test_jax_has_both_sets_of_variables() -> None:
    worker = replicas("JAXJob", 2, ports=[{"name": "jaxjob-port", "containerPort": 7}])
    conversion = convert_job(job("JAXJob", {"Worker": worker}))
    assert seen(conversion, "COORDINATOR_ADDRESS")["demo-node-0-1.demo"] == "demo-node-0-0.demo"
    assert seen(conversion, "COORDINATOR_PORT")["demo-node-0-1.demo"] == "7"
    assert seen(conversion, "JAX_COORDINATOR_ADDRESS")["demo-node-0-1.demo"] == "demo-node-0-0.demo:29500"
    assert "successPolicy" not in job_spec(conversion)


def configs(conversion: Conversion) -> dict[str, Any]:
    found = {}
    for host, pod, fields in pods(built(conversion)):
        text = environment(pod["containers"][0], fields).get("TF_CONFIG")
        found[host] = None if text is None else json.loads(text)
    return found


def test_each_type_is_a_replicated_job() -> None:
    types = {
        "Chief": replicas("TFJob"),
        "PS": replicas("TFJob"),
        "Worker": replicas("TFJob", 2),
        "Evaluator": replicas("TFJob"),
    }
    conversion = convert_job(job("TFJob", types))
    cluster = {
        "chief": ["demo-chief-0-0.demo:2222"],
        "evaluator": ["demo-evaluator-0-0.demo:2222"],
        "ps": ["demo-ps-0-0.demo:2222"],
        "worker": ["demo-worker-0-0.demo:2222", "demo-worker-0-1.demo:2222"],
    }
    found = configs(conversion)
    assert list(found) == [
        address.removesuffix(":2222") for type_ in ("chief", "evaluator", "ps", "worker") for address in cluster[type_]
    ]
    assert found["demo-worker-0-1.demo"] == {
        "cluster": cluster,
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }
    assert runtime_of(conversion)["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["chief"]


def test_workers_alone_are_nodes_of_a_trainer() -> None:
    conversion = convert_job(job("TFJob", {"Worker": replicas("TFJob", 2)}))
    assert list(groups_of(conversion)) == ["node"]
    assert configs(conversion)["demo-node-0-1.demo"]["task"] == {"type": "worker", "index": 1}


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({}, {"rules": [{"succeededIndexes": "0"}]}),
        ({"successPolicy": ""}, {"rules": [{"succeededIndexes": "0"}]}),
        ({"successPolicy": "AllWorkers"}, None),
    ],
)
def test_without_a_chief_the_first_worker_decides_or_all_do(spec: dict[str, Any], policy: Any) -> None:
    conversion = convert_job(job("TFJob", {"PS": replicas("TFJob"), "Worker": replicas("TFJob", 2)}, **spec))
    assert job_spec(conversion, "worker").get("successPolicy") == policy
    assert "successPolicy" not in job_spec(conversion, "ps")
    assert runtime_of(conversion)["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["worker"]


def test_dynamic_workers_know_themselves_only() -> None:
    types = {"PS": replicas("TFJob", 2), "Worker": replicas("TFJob", 2), "Evaluator": replicas("TFJob")}
    conversion = convert_job(job("TFJob", types, enableDynamicWorker=True))
    found = configs(conversion)
    servers = ["demo-ps-0-0.demo:2222", "demo-ps-0-1.demo:2222"]
    assert found["demo-worker-0-1.demo"] == {
        "cluster": {"worker": {"1": "demo-worker-0-1.demo:2222"}, "ps": servers},
        "task": {"type": "worker", "index": 1},
    }
    assert found["demo-ps-0-1.demo"]["cluster"] == {"worker": {}, "ps": servers[1:]}
    assert found["demo-evaluator-0-0.demo"]["cluster"] == {"worker": {}, "ps": []}
    assert lost(conversion) == ["spec.enableDynamicWorker"]


def test_a_port_of_ones_own() -> None:
    worker = replicas("TFJob", 2, ports=[{"name": "tfjob-port", "containerPort": 7}])
    conversion = convert_job(job("TFJob", {"worker": worker, "ps": replicas("TFJob")}))
    assert configs(conversion)["demo-ps-0-0.demo"]["cluster"] == {
        "ps": ["demo-ps-0-0.demo:2222"],
        "worker": ["demo-worker-0-0.demo:7", "demo-worker-0-1.demo:7"],
    }


def test_odd_tfjobs_are_refused() -> None:
    with pytest.raises(ConversionError, match="Chief or Master"):
        convert_job(job("TFJob", {"Chief": replicas("TFJob"), "Master": replicas("TFJob")}))
    with pytest.raises(ConversionError, match="neither empty nor AllWorkers"):
        convert_job(job("TFJob", {"Worker": replicas("TFJob")}, successPolicy="Some"))
