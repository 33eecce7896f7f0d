"""JAXJob: its environment, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from support.job_kinds import job, outcome, problems, replica

from trainmaster.plugins.jobs.jaxjob import JAXJob

KIND = JAXJob()


def test_nothing_is_refused_beyond_what_is_of_all_kinds() -> None:
    assert problems(job(KIND, {"Worker": 3})) == []


RUNNING = "Running: JAXJob team/demo is running."


@pytest.mark.parametrize(
    ("policy", "counts", "expected"),
    [
        ("Never", {"Worker": (1, 1)}, [RUNNING]),
        ("Never", {"Worker": (0, 2)}, ["Succeeded: JAXJob team/demo successfully completed."]),
        (
            "Never",
            {"Worker": (1, 0, 1)},
            [RUNNING, "Failed: JAXJob demo is failed because 1 Worker replica(s) failed."],
        ),
    ],
)
def test_all_workers_have_to_succeed(policy: str, counts: Any, expected: list[str]) -> None:
    assert outcome(job(KIND, {"Worker": replica(KIND, 2, policy)}), **counts) == expected
