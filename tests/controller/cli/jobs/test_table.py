"""The table of jobs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.table import human_duration, table
from trainmaster.controller.kube.rest.resources import Resource


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (10 * 60 + 5, "10m"),
        (3600, "60m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 20 * 60, "3h20m"),
        (9 * 3600 + 20 * 60, "9h"),
        (86400 * 2 + 3600, "2d1h"),
        (86400 * 40, "40d"),
    ],
)
def test_durations_are_written_as_kubectl_writes_them(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_a_job_that_says_nothing_is_listed_as_well() -> None:
    """The definitions of other distributions require less than ours."""
    metadata = {"name": "bare", "namespace": "team", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    job = Job(Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True), {"metadata": metadata})
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert not job.is_suspended
    lines = table([job], pods=[], jobsets=[], now=now, namespaces=True)
    assert lines[1].split() == ["team", "PyTorchJob", "bare", "Pending", "0/0", "0", "60s", "-"]
