"""JAXJob: its environment, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from support.job_kinds import environment, job, outcome, problems, replica

from trainmaster.plugins.jobs.jaxjob import JAXJob
from trainmaster.runtime.jobs.pods import build_pod

KIND = JAXJob()


@pytest.mark.parametrize("index", [0, 1])
def test_the_first_worker_coordinates(index: int) -> None:
    assert list(environment(job(KIND, {"Worker": 2}, name="j"), "Worker", index).items()) == [
        ("PYTHONUNBUFFERED", "1"),
        ("COORDINATOR_PORT", "6666"),
        ("COORDINATOR_ADDRESS", "j-worker-0"),
        ("NUM_PROCESSES", "2"),
        ("PROCESS_ID", str(index)),
    ]


def test_the_port_is_that_of_its_name() -> None:
    worker = replica(KIND, 2, ports=[{"name": "jaxjob-port", "containerPort": 7777}])
    assert environment(job(KIND, {"Worker": worker}), "Worker", 1)["COORDINATOR_PORT"] == "7777"


def test_the_first_worker_has_the_role_of_a_master() -> None:
    given = job(KIND, {"Worker": 2})
    roles = [
        build_pod(given, "Worker", each)["metadata"]["labels"].get("training.kubeflow.org/job-role") for each in (0, 1)
    ]
    assert roles == ["master", None]


def test_nothing_is_refused_beyond_what_is_of_all_kinds() -> None:
    assert problems(job(KIND, {"Worker": 3})) == []


RUNNING = "Running: JAXJob team/demo is running."


@pytest.mark.parametrize(
    ("policy", "counts", "expected"),
    [
        ("Never", {}, []),
        ("Never", {"Worker": (1,)}, [RUNNING]),
        ("Never", {"Worker": (1, 1)}, [RUNNING]),
        ("Never", {"Worker": (0, 2)}, ["Succeeded: JAXJob team/demo successfully completed."]),
        (
            "Never",
            {"Worker": (1, 0, 1)},
            [RUNNING, "Failed: JAXJob demo is failed because 1 Worker replica(s) failed."],
        ),
        (
            "OnFailure",
            {"Worker": (0, 0, 2)},
            ["Restarting: JAXJob demo is restarting because 2 Worker replica(s) failed."],
        ),
    ],
)
def test_all_workers_have_to_succeed(policy: str, counts: Any, expected: list[str]) -> None:
    assert outcome(job(KIND, {"Worker": replica(KIND, 2, policy)}), **counts) == expected
