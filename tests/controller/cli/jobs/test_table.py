"""The table of jobs."""

from __future__ import annotations

from datetime import UTC, datetime

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.table import human_duration, table
from trainmaster.controller.kube.rest.resources import Resource


def test_durations_are_written_as_kubectl_writes_them() -> None:
    hour, day = 3600, 86400
    seconds = (-3, 119.9, 120, 125, 605, hour, 3 * hour, 3 * hour + 1200, 9 * hour + 1200, 2 * day + hour, 40 * day)
    texts = ["0s", "119s", "2m", "2m5s", "10m", "60m", "3h", "3h20m", "9h", "2d1h", "40d"]
    assert [human_duration(each) for each in seconds] == texts


def test_a_job_that_says_nothing_is_listed_as_well() -> None:
    """The definitions of other distributions require less than ours."""
    metadata = {"name": "bare", "namespace": "team", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    job = Job(Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True), {"metadata": metadata})
    now = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    assert not job.is_suspended
    lines = table([job], pods=[], jobsets=[], now=now, namespaces=True)
    assert lines[1].split() == ["team", "PyTorchJob", "bare", "Pending", "0/0", "0", "60s", "-"]
