"""JAXJob, XGBoostJob and PaddleJob, and the recorded pods of all kinds: ours are given the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.golden import load_yaml
from support.job_kinds import environment, job, outcome, problems, replica, warnings

from trainmaster.plugins.jobs.jaxjob import JAXJob
from trainmaster.plugins.jobs.paddlejob import PaddleJob
from trainmaster.plugins.jobs.xgboostjob import XGBoostJob
from trainmaster.runtime.api.constants import COSCHEDULING_POD_LABEL
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.loader import load_job_kinds
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject

JAX, XGBOOST, PADDLE = JAXJob(), XGBoostJob(), PaddleJob()


@pytest.mark.parametrize("replicas", [{"Master": 1}, {"Master": 1, "Worker": 0}])
def test_an_xgboost_master_alone_knows_of_no_workers(replicas: JsonObject) -> None:
    env = environment(job(XGBOOST, replicas), "Master", 0)
    assert env["WORLD_SIZE"] == "1"
    assert not {"WORKER_PORT", "WORKER_ADDRS"} & env.keys()


def test_a_second_paddle_master_is_a_server_that_meets_the_others_at_the_first() -> None:
    env = environment(job(PADDLE, {"Master": 2, "Worker": 2}, name="p"), "Master", 1)
    assert list(env.items())[3:] == [("PADDLE_MASTER", "p-master-0:36543"), ("PADDLE_SERVER_NUM", "1")]


@pytest.mark.defect("V1-B16")
@pytest.mark.parametrize(
    ("kind", "replicas", "expected"),
    [
        (JAX, {"Worker": 3}, []),
        (XGBOOST, {"Worker": 1}, ["spec.xgbReplicaSpecs[Master]: Required value: must be present"]),
        (XGBOOST, {"Master": 2}, ["spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1"]),
        # V1-B16: the original refused a master that does not say that it is one, although that is the default.
        (XGBOOST, {"Master": None, "Worker": 2}, []),
    ],
)
def test_what_is_refused(kind: JobKind, replicas: JsonObject, expected: list[str]) -> None:
    assert problems(job(kind, replicas)) == expected


@pytest.mark.defect("V1-B13")
@pytest.mark.parametrize(("replica_type", "policy"), [("Master", {}), ("Worker", {"minReplicas": 1, "metrics": []})])
def test_an_elastic_policy_of_paddle_does_nothing_and_no_harm(replica_type: str, policy: JsonObject) -> None:
    """V1-B13, V1-B23: without limits and workers it crashed the original; nothing ever came of it, so we say that."""
    given = job(PADDLE, {replica_type: 2}, elasticPolicy=policy)
    plain = job(PADDLE, {replica_type: 2})
    assert build_pod(given, replica_type, 1) == build_pod(plain, replica_type, 1)
    assert problems(given) == []
    assert warnings(plain) == []
    (warning,) = warnings(given)
    assert warning.startswith("spec.elasticPolicy: is ignored: ")


RUNNING = "Running: {} demo is running."
SUCCEEDED = "Succeeded: {} demo is successfully completed."
FAILED = "Failed: {} demo is failed because 1 Worker replica(s) failed."
RESTARTING = "Restarting: {} demo is restarting because 1 Worker replica(s) failed."
ALL_RUN = "Running: {} team/demo is running."
ALL_SUCCEEDED = "Succeeded: {} team/demo successfully completed."


@pytest.mark.defect("V1-B10")
@pytest.mark.parametrize(
    ("kind", "masters", "policy", "counts", "expected"),
    [
        # Without a master, all workers have to succeed.
        (JAX, None, "Never", {"Worker": (1, 1)}, [ALL_RUN]),
        (JAX, None, "Never", {"Worker": (0, 2)}, [ALL_SUCCEEDED]),
        (JAX, None, "Never", {"Worker": (1, 0, 1)}, [ALL_RUN, FAILED]),
        (PADDLE, None, "Never", {"Worker": (0, 2)}, [ALL_SUCCEEDED]),
        # With one, it says how the job fares.
        (PADDLE, 1, "Never", {"Worker": (2,)}, []),
        (PADDLE, 1, "Never", {"Master": (1,)}, [RUNNING]),
        (PADDLE, 1, "Never", {"Master": (0, 1), "Worker": (2,)}, [SUCCEEDED]),
        (XGBOOST, 1, "Never", {"Worker": (2,)}, []),
        (XGBOOST, 1, "Never", {"Master": (1,)}, [RUNNING]),
        (XGBOOST, 1, "Never", {"Master": (0, 1), "Worker": (1, 0, 1)}, [RUNNING, SUCCEEDED]),
        (XGBOOST, 1, "Never", {"Worker": (1, 0, 1)}, [RUNNING, FAILED]),
        (XGBOOST, 1, "ExitCode", {"Worker": (1, 0, 1)}, [RUNNING, RESTARTING]),
        # V1-B10: the original deleted the pod so that it would be replaced, and failed the job.
        (XGBOOST, 1, "OnFailure", {"Master": (1,), "Worker": (1, 0, 1)}, [RUNNING, RUNNING, RESTARTING]),
    ],
)
def test_how_a_job_fares(kind: JobKind, masters: int | None, policy: str, counts: Any, expected: list[str]) -> None:
    replicas = {"Worker": replica(kind, 2, policy)} | ({"Master": replica(kind, 1, policy)} if masters else {})
    assert outcome(job(kind, replicas), **counts) == [text.format(kind.kind) for text in expected]


CASES = sorted((Path(__file__).parents[2] / "golden" / "v1").glob("*.yaml"))
KINDS = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
PROFILES: dict[str, JsonObject] = {
    "custom": {
        "options": {
            "pytorchjob": {"initContainerImage": "registry.example/tools/busybox:9", "initContainerMaxTries": 7}
        },
        "cluster_domain": "corp.example",
    }
}
"""How the operator was started: what differs from the default."""


def created(case: JsonObject) -> Iterator[JsonObject]:
    """The jobs that were created first."""
    for action in case["steps"][0]["do"]:
        if (obj := action.get("create")) and obj["kind"] in KINDS:
            yield obj


LOADED = {path.stem: load_yaml(path.read_text()) for path in CASES}
JOBS = {
    name: (case, obj)
    for name, case in LOADED.items()
    for obj in created(case)
    # Without what a test of its own is about, and without pods of others.
    if case["expect"][case["steps"][0]["stage"]].get("pods")
    and case["given"]["profile"] != "template"
    and not case["given"].get("objects")
}


def kind_of(case: JsonObject, obj: JsonObject) -> JobKind:
    settings = PROFILES.get(case["given"]["profile"], {})
    return next(each for each in load_job_kinds(**settings) if each.kind == obj["kind"])


def pods(job: Job) -> dict[str, JsonObject]:
    built = (build_pod(job, each, index) for each, spec in job.replica_specs.items() for index in range(spec.replicas))
    return {pod["metadata"]["name"]: pod for pod in built}


def told(pod: JsonObject) -> Any:
    """What a pod is told of the others: by container its environment and ports; who waits for them; its labels."""
    spec = pod["spec"]
    env = {each["name"]: each.get("env") or [] for each in spec["containers"]}
    ports = {each["name"]: sorted(map(str, each.get("ports") or [])) for each in spec["containers"]}
    unlike = {"image", "command", "imagePullPolicy"}
    waiting = [{key: each[key] for key in each.keys() - unlike} for each in spec.get("initContainers") or []]
    labels = {name: value for name, value in pod["metadata"]["labels"].items() if name != COSCHEDULING_POD_LABEL}
    return env, ports, waiting, labels, spec["restartPolicy"]


def improve(pod: JsonObject) -> None:
    """Change a recorded pod where we differ on purpose."""
    for container in pod["spec"]["containers"]:
        for variable in container.get("env") or []:
            if variable["name"] == "PET_STANDALONE":
                variable["value"] = "1"  # V1-B14; it was empty
            if variable["name"] == "TF_CONFIG":
                variable["value"] = variable["value"].replace('"ps":null', '"ps":[]')  # V1-B39


@pytest.mark.parametrize(("case", "obj"), JOBS.values(), ids=JOBS.keys())
def test_pods_are_told_what_was_recorded(case: JsonObject, obj: JsonObject) -> None:
    """But for the image and the command of the init container (V1-B22)."""
    namespace = case["given"].get("namespace", "NS")
    kind = kind_of(case, obj)
    job = parse_job(kind, {**obj, "metadata": {**obj["metadata"], "namespace": namespace, "uid": "1"}})
    recorded = case["expect"][case["steps"][0]["stage"]]["pods"]
    ours = pods(job)
    assert ours.keys() == recorded.keys()
    for name, pod in recorded.items():
        improve(pod)
        assert told(ours[name]) == told(pod)


def test_every_kind_was_recorded() -> None:
    assert {obj["kind"] for _, obj in JOBS.values()} == set(KINDS)
