"""PaddleJob: its environment, collective and with parameter servers, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from support.job_kinds import environment, job, outcome, problems, replica, warnings

from trainmaster.plugins.jobs.paddlejob import PaddleJob
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jsontree import JsonObject

KIND = PaddleJob()


def test_a_second_master_is_a_server_that_meets_the_others_at_the_first() -> None:
    env = environment(job(KIND, {"Master": 2, "Worker": 2}, name="p"), "Master", 1)
    assert list(env.items())[3:] == [("PADDLE_MASTER", "p-master-0:36543"), ("PADDLE_SERVER_NUM", "1")]


@pytest.mark.defect("V1-B13")
@pytest.mark.parametrize(("replica_type", "policy"), [("Master", {}), ("Worker", {"minReplicas": 1, "metrics": []})])
def test_an_elastic_policy_does_nothing_and_no_harm(replica_type: str, policy: JsonObject) -> None:
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
        ({"Worker": 2}, "Never", {"Worker": (0, 2)}, ["Succeeded: PaddleJob team/demo successfully completed."]),
    ],
)
def test_masters_say_how_a_job_fares_else_workers(
    replicas: dict[str, int], policy: str, counts: Any, expected: list[str]
) -> None:
    given = job(KIND, {each: replica(KIND, count, policy) for each, count in replicas.items()})
    assert outcome(given, **counts) == expected
