"""JAXJob, XGBoostJob and PaddleJob: what recorded cases do not show of their environment, and how they end."""

from typing import Any

import pytest
from support.job_kinds import environment, job, outcome, problems, replica, warnings

from trainmaster.plugins.jobs.jaxjob import JAXJob
from trainmaster.plugins.jobs.paddlejob import PaddleJob
from trainmaster.plugins.jobs.xgboostjob import XGBoostJob
from trainmaster.runtime.jobs.interface import JobKind
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
