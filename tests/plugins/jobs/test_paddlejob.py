"""PaddleJob: its environment, collective and with parameter servers, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from support.job_kinds import environment, job, outcome, problems, replica, warnings

from trainmaster.plugins.jobs.paddlejob import PaddleJob
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject

KIND = PaddleJob()


def test_workers_alone_meet_at_the_first() -> None:
    worker = replica(KIND, 2, ports=[{"name": "master", "containerPort": 37777}])
    given = job(KIND, {"Worker": worker}, name="p")
    assert list(environment(given, "Worker", 0).items()) == [
        ("PYTHONUNBUFFERED", "1"),
        ("PADDLE_JOB_ID", "p"),
        ("PADDLE_NNODES", "2"),
        ("POD_IP_DUMMY", "status.podIP"),
        ("PADDLE_MASTER", "$(POD_IP_DUMMY):37777"),
    ]
    assert list(environment(given, "Worker", 1).items()) == [
        ("PYTHONUNBUFFERED", "1"),
        ("PADDLE_JOB_ID", "p"),
        ("PADDLE_NNODES", "2"),
        ("PADDLE_MASTER", "p-worker-0:37777"),
    ]


@pytest.mark.parametrize(
    ("replica_type", "index", "expected"),
    [
        ("Master", 0, ["POD_IP_DUMMY=status.podIP", "PADDLE_MASTER=$(POD_IP_DUMMY):36543", "PADDLE_SERVER_NUM=1"]),
        ("Master", 1, ["PADDLE_MASTER=p-master-0:36543", "PADDLE_SERVER_NUM=1"]),
        ("Worker", 0, ["PADDLE_MASTER=p-master-0:36543", "PADDLE_TRAINER_NUM=1"]),
    ],
)
def test_with_masters_they_are_the_servers(replica_type: str, index: int, expected: list[str]) -> None:
    env = environment(job(KIND, {"Master": 2, "Worker": 2}, name="p"), replica_type, index)
    assert [f"{name}={value}" for name, value in env.items()][3:] == expected


@pytest.mark.parametrize(("replicas", "roles"), [({"Master": 1, "Worker": 1}, ["p-master-0"]), ({"Worker": 1}, [])])
def test_only_masters_have_the_role_of_one(replicas: JsonObject, roles: list[str]) -> None:
    given = job(KIND, replicas, name="p")
    metadata = [build_pod(given, each, 0)["metadata"] for each in given.replica_specs]
    assert [each["name"] for each in metadata if "training.kubeflow.org/job-role" in each["labels"]] == roles


@pytest.mark.defect("V1-B13")
@pytest.mark.parametrize("policy", [{}, {"minReplicas": 1}, {"metrics": []}])
@pytest.mark.parametrize("replica_type", ["Master", "Worker"])
def test_an_elastic_policy_does_nothing_and_no_harm(policy: JsonObject, replica_type: str) -> None:
    """V1-B13, V1-B23: without limits and workers it crashed the original; nothing ever came of it, so we say that."""
    given = job(KIND, {replica_type: 2}, elasticPolicy=policy)
    plain = job(KIND, {replica_type: 2})
    assert build_pod(given, replica_type, 1) == build_pod(plain, replica_type, 1)
    assert problems(given) == []
    assert warnings(plain) == []
    (warning,) = warnings(given)
    assert warning.startswith("spec.elasticPolicy: is ignored: ")


@pytest.mark.parametrize(
    ("replicas", "policy", "counts", "expected"),
    [
        ({"Master": 1, "Worker": 2}, "Never", {"Worker": (2,)}, []),
        ({"Master": 1, "Worker": 2}, "Never", {"Master": (1,)}, ["Running: PaddleJob demo is running."]),
        (
            {"Master": 1, "Worker": 2},
            "Never",
            {"Master": (0, 1), "Worker": (2,)},
            ["Succeeded: PaddleJob demo is successfully completed."],
        ),
        ({"Worker": 2}, "Never", {"Worker": (1, 1)}, ["Running: PaddleJob team/demo is running."]),
        ({"Worker": 2}, "Never", {"Worker": (0, 2)}, ["Succeeded: PaddleJob team/demo successfully completed."]),
        (
            {"Worker": 2},
            "Never",
            {"Worker": (0, 0, 1)},
            ["Failed: PaddleJob demo is failed because 1 Worker replica(s) failed."],
        ),
        (
            {"Master": 1, "Worker": 2},
            "OnFailure",
            {"Worker": (1, 0, 1)},
            ["Restarting: PaddleJob demo is restarting because 1 Worker replica(s) failed."],
        ),
    ],
)
def test_masters_say_how_a_job_fares_else_workers(
    replicas: dict[str, int], policy: str, counts: Any, expected: list[str]
) -> None:
    given = job(KIND, {each: replica(KIND, count, policy) for each, count in replicas.items()})
    assert outcome(given, **counts) == expected
