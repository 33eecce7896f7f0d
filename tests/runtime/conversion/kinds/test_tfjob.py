"""TFJobs: a ReplicatedJob for each type, TF_CONFIG with the index that Kubernetes fills in."""

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
)

from trainmaster.runtime.conversion.notes import Conversion, ConversionError

KIND = "TFJob"


def configs(conversion: Conversion) -> dict[str, Any]:
    found = {}
    for host, pod, fields in pods(built(conversion)):
        text = environment(pod["containers"][0], fields).get("TF_CONFIG")
        found[host] = None if text is None else json.loads(text)
    return found


def test_each_type_is_a_replicated_job() -> None:
    types = {"Chief": replicas(KIND), "PS": replicas(KIND), "Worker": replicas(KIND, 2), "Evaluator": replicas(KIND)}
    conversion = convert_job(job(KIND, types))
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
    conversion = convert_job(job(KIND, {"Worker": replicas(KIND, 2)}))
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
    conversion = convert_job(job(KIND, {"PS": replicas(KIND), "Worker": replicas(KIND, 2)}, **spec))
    assert job_spec(conversion, "worker").get("successPolicy") == policy
    assert "successPolicy" not in job_spec(conversion, "ps")
    assert runtime_of(conversion)["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["worker"]


def test_dynamic_workers_know_themselves_only() -> None:
    types = {"PS": replicas(KIND, 2), "Worker": replicas(KIND, 2), "Evaluator": replicas(KIND)}
    conversion = convert_job(job(KIND, types, enableDynamicWorker=True))
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
    worker = replicas(KIND, 2, ports=[{"name": "tfjob-port", "containerPort": 7}])
    conversion = convert_job(job(KIND, {"worker": worker, "ps": replicas(KIND)}))
    assert configs(conversion)["demo-ps-0-0.demo"]["cluster"] == {
        "ps": ["demo-ps-0-0.demo:2222"],
        "worker": ["demo-worker-0-0.demo:7", "demo-worker-0-1.demo:7"],
    }


def test_odd_jobs_are_refused() -> None:
    with pytest.raises(ConversionError, match="Chief or Master"):
        convert_job(job(KIND, {"Chief": replicas(KIND), "Master": replicas(KIND)}))
    with pytest.raises(ConversionError, match="neither empty nor AllWorkers"):
        convert_job(job(KIND, {"Worker": replicas(KIND)}, successPolicy="Some"))
