"""TFJob: `TF_CONFIG`, what is admitted, and whose end is that of the job."""

import json
from typing import Any

import pytest
from support.job_kinds import environment, job, outcome, problems, replica, warnings

from trainmaster.plugins.jobs.tfjob import TFJob
from trainmaster.runtime.api.decoding import ApiTypeError
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject

KIND = TFJob()


def tf_config(given: Job, replica_type: str, index: int) -> str | None:
    return environment(given, replica_type, index).get("TF_CONFIG")


@pytest.mark.parametrize(("replicas", "distributed"), [({"Worker": 1, "PS": 1}, True), ({"Worker": 0, "PS": 1}, False)])
def test_a_job_of_one_replica_needs_no_cluster(replicas: JsonObject, distributed: bool) -> None:
    given = job(KIND, replicas)
    first = next(each for each in given.replica_specs if given.replicas(each))
    assert (tf_config(given, first, 0) is not None) == distributed


def test_all_replicas_are_in_the_cluster() -> None:
    given = job(TFJob(cluster_domain="tf.training.org"), {"Worker": 1, "PS": 1}, name="t", namespace="ns2")
    assert tf_config(given, "Worker", 0) == (
        '{"cluster":{"ps":["t-ps-0.ns2.svc.tf.training.org:2222"],'
        '"worker":["t-worker-0.ns2.svc.tf.training.org:2222"]},'
        '"task":{"type":"worker","index":0},"environment":"cloud"}'
    )


def test_each_type_has_its_own_port() -> None:
    ports = [{"name": "tfjob-port", "containerPort": 4000}]
    given = job(KIND, {"Worker": replica(KIND, 1, ports=ports), "PS": 1})
    cluster = json.loads(tf_config(given, "PS", 0) or "")["cluster"]
    assert cluster == {"ps": ["demo-ps-0.team.svc:2222"], "worker": ["demo-worker-0.team.svc:4000"]}


@pytest.mark.parametrize(
    ("replica_type", "index", "cluster"),
    [
        ("Worker", 0, {"worker": {"0": "d-worker-0.n.svc:2222"}, "ps": ["d-ps-0.n.svc:2222", "d-ps-1.n.svc:2222"]}),
        ("Worker", 1, {"worker": {"1": "d-worker-1.n.svc:2222"}, "ps": ["d-ps-0.n.svc:2222", "d-ps-1.n.svc:2222"]}),
        ("PS", 1, {"worker": {}, "ps": ["d-ps-1.n.svc:2222"]}),
        ("Evaluator", 0, {"worker": {}, "ps": []}),
    ],
)
def test_dynamic_workers_know_themselves_and_the_servers(replica_type: str, index: int, cluster: JsonObject) -> None:
    replicas = {"Worker": 2, "PS": 2, "Evaluator": 1}
    given = job(KIND, replicas, name="d", namespace="n", enableDynamicWorker=True)
    task = {"type": replica_type.lower(), "index": index}
    text = tf_config(given, replica_type, index) or ""
    assert json.loads(text) == {"cluster": cluster, "task": task}
    assert text.startswith('{"cluster":{"worker":')


@pytest.mark.defect("V1-B39")
def test_dynamic_workers_without_servers_know_of_none() -> None:
    """V1-B39: the original wrote null, which TensorFlow refuses."""
    given = job(KIND, {"Worker": 2}, enableDynamicWorker=True)
    assert json.loads(tf_config(given, "Worker", 0) or "")["cluster"]["ps"] == []


def test_only_the_container_that_trains_is_told() -> None:
    """V1-B38: and the operator's value comes last."""
    worker = replica(KIND, 2, env=[{"name": "TF_CONFIG", "value": "mine"}])
    worker["template"]["spec"]["containers"].insert(0, {"name": "side", "image": "side:1"})
    side, trainer = build_pod(job(KIND, {"Worker": worker}), "Worker", 0)["spec"]["containers"]
    assert "env" not in side
    assert [each["name"] for each in trainer["env"]] == ["TF_CONFIG", "TF_CONFIG"]
    assert trainer["env"][0]["value"] == "mine"


@pytest.mark.parametrize("second", ["Master", "master"])
def test_a_second_leader_is_refused(second: str) -> None:
    refusal = "spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role"
    assert problems(job(KIND, {"Chief": 1, second: 1})) == [refusal]
    assert problems(job(KIND, {"Chief": 1, "Worker": 1}, successPolicy="AllWorkers")) == []


@pytest.mark.defect("V1-B17")
def test_a_policy_of_success_that_is_none_is_warned_of() -> None:
    """V1-B17: it means the default, as in the original, whose author may have thought otherwise."""
    given = job(KIND, {"Worker": 1}, successPolicy="allWorkers")
    assert problems(given) == []
    (warning,) = warnings(given)
    assert warning.startswith('spec.successPolicy: "allWorkers" is not AllWorkers, so the success of the first worker')


def test_replicas_of_other_types_have_no_part_in_how_a_job_fares() -> None:
    """They run, and find the others: TensorFlow knows jobs of any name."""
    given = job(KIND, {"Worker": 1, "Sidekick": 1})
    assert outcome(given, Worker=(1,), Sidekick=(0, 0, 1)) == [RUNNING]
    assert "TF_CONFIG" not in environment(given, "Worker", 0)
    pair = job(KIND, {"Worker": 2, "Sidekick": 1})
    assert list(json.loads(tf_config(pair, "Sidekick", 0) or "")["cluster"]) == ["sidekick", "worker"]


@pytest.mark.parametrize("spec", [{"successPolicy": 1}, {"enableDynamicWorker": "yes"}])
def test_fields_of_wrong_types_are_named(spec: JsonObject) -> None:
    with pytest.raises(ApiTypeError, match=f"spec.{next(iter(spec))}: must be"):
        job(KIND, {"Worker": 1}, **spec)


@pytest.mark.parametrize(
    ("replicas", "roles"),
    [
        ({"Chief": 2, "Worker": 2}, ["demo-chief-0", "demo-chief-1"]),
        ({"Master": 1, "PS": 1}, ["demo-master-0"]),
        ({"Worker": 2, "PS": 1}, ["demo-worker-0"]),
        ({"PS": 2, "Evaluator": 1}, []),
    ],
)
def test_who_has_the_role_of_a_master(replicas: JsonObject, roles: list[str]) -> None:
    given = job(KIND, replicas)
    pods = [build_pod(given, each, index) for each in given.replica_specs for index in range(given.replicas(each))]
    leading = [pod["metadata"] for pod in pods if "training.kubeflow.org/job-role" in pod["metadata"]["labels"]]
    assert [each["name"] for each in leading] == roles


RUNNING = "Running: TFJob team/demo is running."
SUCCEEDED = "Succeeded: TFJob team/demo successfully completed."


def worker_pod(index: int, phase: str) -> JsonObject:
    labels = {"training.kubeflow.org/replica-index": str(index)}
    return {"metadata": {"name": f"demo-worker-{index}", "labels": labels}, "status": {"phase": phase}}


def failed(replica_type: str) -> str:
    return f"Failed: TFJob team/demo has failed because 1 {replica_type} replica(s) failed."


def restarting(replica_type: str) -> str:
    return f"Restarting: job demo is restarting because {replica_type} replica(s) failed."


@pytest.mark.parametrize(
    ("replicas", "policy", "counts", "expected"),
    [
        # A chief or a master decides.
        ({"Chief": 1, "PS": 2, "Worker": 4}, "Never", {"Worker": (4,), "PS": (2,)}, []),
        ({"Master": 1, "Worker": 4}, "Never", {"Master": (1,)}, [RUNNING]),
        ({"Chief": 1, "Worker": 4}, "Never", {"Chief": (0, 1), "Worker": (4,)}, [SUCCEEDED]),
        ({"Chief": 1, "Worker": 4}, "Never", {"Worker": (0, 4)}, []),
        ({"Chief": 1}, "ExitCode", {"Chief": (0, 0, 1)}, [restarting("Chief")]),
        # Workers, without one.
        ({"PS": 2, "Worker": 4}, "Never", {"Worker": (2, 2), "PS": (2,)}, [RUNNING]),
        ({"PS": 2, "Worker": 4}, "Never", {"Worker": (0, 4)}, [SUCCEEDED]),
        ({"PS": 2, "Worker": 4}, "Never", {"Worker": (3, 0, 1)}, [RUNNING, failed("Worker")]),
        ({"PS": 1, "Worker": 1}, "Never", {"Worker": (1,), "PS": (0, 0, 1)}, [RUNNING, failed("PS")]),
        ({"Worker": 4}, "Always", {"Worker": (0, 0, 1)}, [restarting("Worker")]),
    ],
)
def test_how_a_job_fares(replicas: dict[str, int], policy: str, counts: Any, expected: list[str]) -> None:
    given = job(KIND, {each: replica(KIND, count, policy) for each, count in replicas.items()})
    assert outcome(given, **counts) == expected


@pytest.mark.parametrize(
    ("policy", "done", "expected"),
    [("", 0, [SUCCEEDED]), (None, 0, [SUCCEEDED]), ("AllWorkers", 0, [RUNNING]), ("", 1, [RUNNING])],
)
def test_the_first_worker_is_enough_unless_all_must_do(policy: str | None, done: int, expected: list[str]) -> None:
    pods = [worker_pod(index, "Succeeded" if index == done else "Running") for index in range(4)]
    given = job(KIND, {"Worker": 4}, successPolicy=policy)
    assert outcome(given, {"Worker": pods}, Worker=(3, 1)) == expected


def test_the_first_worker_decides_nothing_where_a_chief_leads() -> None:
    given = job(KIND, {"Chief": 1, "Worker": 2})
    pods = [worker_pod(0, "Succeeded"), worker_pod(1, "Running")]
    assert outcome(given, {"Worker": pods}, Chief=(1,), Worker=(1, 1)) == [RUNNING]


@pytest.mark.parametrize(("policy", "expected"), [("Never", [RUNNING]), ("ExitCode", [RUNNING, restarting("Worker")])])
def test_dynamic_workers_may_fail(policy: str, expected: list[str]) -> None:
    given = job(KIND, {"PS": 1, "Worker": replica(KIND, 3, policy)}, enableDynamicWorker=True)
    assert outcome(given, PS=(1,), Worker=(2, 0, 1)) == expected
    assert outcome(given, PS=(0, 0, 1), Worker=(3,)) == [RUNNING, failed("PS")]


@pytest.mark.defect("V1-B7")
def test_a_job_does_not_succeed_and_fail_at_once() -> None:
    """V1-B7: the original went on after the chief had succeeded, and set Failed as well."""
    assert outcome(job(KIND, {"Chief": 1, "Worker": 2}), Chief=(0, 1), Worker=(1, 0, 1)) == [SUCCEEDED]


@pytest.mark.defect("V1-B7")
@pytest.mark.parametrize(
    ("replicas", "counts", "expected"),
    [
        ({"PS": 2}, {"PS": (1,)}, [RUNNING]),
        ({"PS": 2}, {"PS": (0, 2)}, [SUCCEEDED]),
        ({"PS": 1, "Evaluator": 1}, {"PS": (1,), "Evaluator": (0, 1)}, [SUCCEEDED]),
        ({"PS": 1, "Evaluator": 1}, {"PS": (1,), "Evaluator": (0, 0, 1)}, [failed("Evaluator")]),
    ],
)
def test_servers_and_evaluators_alone_run_and_end(replicas: Any, counts: Any, expected: list[str]) -> None:
    """V1-B7: the original never said that such a job runs or has succeeded."""
    assert outcome(job(KIND, replicas), **counts) == expected


@pytest.mark.defect("V1-B7")
def test_one_types_restart_does_not_hide_anothers_failure() -> None:
    """V1-B7: it goes by the restart policy of each type, not by a condition that another one has left."""
    given = job(KIND, {"PS": replica(KIND, 1, "Never"), "Worker": replica(KIND, 1, "OnFailure")})
    assert outcome(given, PS=(0, 0, 1), Worker=(0, 0, 1)) == [failed("PS"), restarting("Worker")]
