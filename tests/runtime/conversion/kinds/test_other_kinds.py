"""XGBoostJobs, PaddleJobs and JAXJobs: which pods are the same, and when a job has ended."""

from __future__ import annotations

from support.conversions import (
    built,
    convert_job,
    environment,
    groups_of,
    job,
    job_spec,
    pods,
    replicas,
    runtime_of,
    told,
)

from trainmaster.runtime.conversion.notes import Conversion


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
