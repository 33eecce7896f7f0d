"""XGBoostJob: its environment, what is admitted, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from support.job_kinds import environment, job, outcome, problems, replica

from trainmaster.plugins.jobs.xgboostjob import XGBoostJob
from trainmaster.runtime.jsontree import JsonObject

KIND = XGBoostJob()


@pytest.mark.parametrize("replicas", [{"Master": 1}, {"Master": 1, "Worker": 0}])
def test_a_master_alone_knows_of_no_workers(replicas: JsonObject) -> None:
    env = environment(job(KIND, replicas), "Master", 0)
    assert env["WORLD_SIZE"] == "1"
    assert not {"WORKER_PORT", "WORKER_ADDRS"} & env.keys()


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ({"Worker": 1}, ["spec.xgbReplicaSpecs[Master]: Required value: must be present"]),
        ({"Master": 2}, ["spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1"]),
    ],
)
def test_what_is_refused(replicas: JsonObject, expected: list[str]) -> None:
    assert problems(job(KIND, replicas)) == expected


@pytest.mark.defect("V1-B16")
def test_a_master_need_not_say_that_it_is_one() -> None:
    """V1-B16: the original refused it, although one is the default."""
    assert problems(job(KIND, {"Master": None, "Worker": 2})) == []


RUNNING = "Running: XGBoostJob demo is running."
SUCCEEDED = "Succeeded: XGBoostJob demo is successfully completed."
FAILED = "Failed: XGBoostJob demo is failed because 1 Worker replica(s) failed."
RESTARTING = "Restarting: XGBoostJob demo is restarting because 1 Worker replica(s) failed."


@pytest.mark.parametrize(
    ("policy", "counts", "expected"),
    [
        ("Never", {"Worker": (2,)}, []),
        ("Never", {"Master": (1,)}, [RUNNING]),
        ("Never", {"Master": (0, 1), "Worker": (2,)}, [RUNNING, SUCCEEDED]),
        ("Never", {"Master": (0, 1), "Worker": (1, 0, 1)}, [RUNNING, SUCCEEDED]),
        ("Never", {"Worker": (1, 0, 1)}, [RUNNING, FAILED]),
        ("ExitCode", {"Worker": (1, 0, 1)}, [RUNNING, RESTARTING]),
    ],
)
def test_the_master_says_how_a_job_fares(policy: str, counts: Any, expected: list[str]) -> None:
    given = job(KIND, {"Master": 1, "Worker": replica(KIND, 2, policy)})
    assert outcome(given, **counts) == expected


@pytest.mark.defect("V1-B10")
@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_a_replica_that_is_replaced_does_not_fail_the_job(policy: str) -> None:
    """V1-B10: the original deleted the pod so that it would be replaced, and failed the job."""
    given = job(KIND, {"Master": 1, "Worker": replica(KIND, 2, policy)})
    assert outcome(given, Master=(1,), Worker=(1, 0, 1)) == [RUNNING, RUNNING, RESTARTING]
