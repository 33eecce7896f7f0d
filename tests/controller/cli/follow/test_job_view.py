"""What is shown of a job: its state, its pods by what they are for, its times, and how far its training is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from support.followed_jobs import condition, job_status, pod, pods

from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.follow.progress import Attempt, JobView
from trainmaster.controller.cli.follow.summary import clock, rank_groups, summary
from trainmaster.controller.job_fields import Progress
from trainmaster.controller.kube.clock import seconds_between


def test_a_job_is_in_the_state_that_matters_most() -> None:
    assert job_status().state == "Pending"
    assert job_status(pods=pods("Running")).state == "Running"
    assert job_status(conditions=condition("Blocked")).state == "Blocked"
    assert job_status(conditions=condition("Blocked") | condition("Suspended")).state == "Suspended"
    assert job_status(conditions=condition("Suspended") | condition("Failed")).state == "Failed"
    assert job_status(deleted=True).state == "Deleted"
    assert job_status(conditions=condition("Complete"), deleted=True).state == "Complete"


def test_groups_come_in_the_order_in_which_they_start() -> None:
    there = (
        pods("Running", "Pending") | pods("Running", group="launcher") | pods("Succeeded", group="model-initializer")
    )
    groups = rank_groups(job_status(pods=there, nodes=4))
    assert [(group.name, group.text) for group in groups] == [
        ("model-initializer", "1/1 done"),
        ("launcher", "1/1 running"),
        ("node", "1/4 running, 1 pending"),
    ]
    assert [group.is_done for group in groups] == [True, False, False]
    assert summary(groups) == "launcher 1/1 running"


def test_ranks_are_counted_before_they_have_pods_and_once_when_they_were_replaced() -> None:
    assert [(group.name, group.text) for group in rank_groups(job_status(nodes=4))] == [("node", "0/4 pods")]
    assert rank_groups(job_status()) == []
    assert summary([]) == ""
    there = {
        "new": pod("Running", created="2024-01-01T00:00:09Z"),
        "old": pod("Failed", created="2024-01-01T00:00:00Z"),
    }
    assert [group.text for group in rank_groups(job_status(pods=there, nodes=1))] == ["1/1 running"]


def test_what_keeps_pods_from_running_is_named() -> None:
    (group,) = rank_groups(job_status(pods=pods("Running", "Pending", reason="ImagePullBackOff")))
    assert group.text == "1/2 running, 1 ImagePullBackOff"
    assert group.has_trouble
    (group,) = rank_groups(job_status(pods=pods("Pending", "Pending", reason="ContainerCreating")))
    assert group.text == "2/2 ContainerCreating"
    assert not group.has_trouble
    (group,) = rank_groups(job_status(pods=pods("Failed", "Running")))
    assert (group.text, group.has_trouble) == ("1/2 running, 1 failed", True)


def test_durations() -> None:
    seconds = (0, 59.9, 83, 3599, 3600, 3723, 90000)
    assert [clock(each) for each in seconds] == ["0:00", "0:59", "1:23", "59:59", "1:00:00", "1:02:03", "1d 01:00"]


def test_seconds_between_times_of_servers() -> None:
    """Clocks differ: nothing lasts less than no time."""
    assert seconds_between("2024-01-01T00:00:00Z", "2024-01-01T00:01:23Z") == 83
    assert seconds_between("2024-01-01T00:00:00Z", datetime(2024, 1, 1, 0, 0, 5, tzinfo=UTC)) == 5
    assert seconds_between("2024-01-01T00:00:09Z", "2024-01-01T00:00:00Z") == 0
    for start, end in ((None, "2024-01-01T00:00:00Z"), ("2024-01-01T00:00:00Z", None), ("soon", "later"), ("", "")):
        assert seconds_between(start, end) is None
    assert seconds_between("2024-01-01T00:00:00", "2024-01-01T00:00:00Z") is None, "one has no time zone"


NOW = datetime(2024, 1, 1, 0, 10, tzinfo=UTC)


def view(attempt: Attempt, status: JobStatus, *, now: float = 0) -> JobView:
    return attempt.view(status, "mnist", now=now, wall_clock=NOW)


def test_what_the_log_tells_is_shown() -> None:
    attempt = Attempt()
    attempt.take(["loading", "epoch 1/10 loss 0.3"])
    view(attempt, job_status(), now=100)
    attempt.take(["epoch 2/10 loss 0.2"])
    shown = view(attempt, job_status(), now=160)
    assert shown.fraction == pytest.approx(0.2)
    assert shown.what == "epoch 2/10"
    assert shown.remaining == pytest.approx(480)


def test_what_the_training_reports_counts_more() -> None:
    attempt = Attempt()
    attempt.take(["epoch 2/10 loss 0.2"])
    shown = view(attempt, job_status(progress=Progress(47, 94, {"loss": "0.2"})))
    assert (shown.fraction, shown.remaining, shown.metrics) == (0.47, 94, {"loss": "0.2"})
    assert shown.what == "epoch 2/10"
    assert view(attempt, job_status(progress=Progress(170, None, {}))).fraction == 1
    # Metrics alone are shown with what the log tells.
    attempt = Attempt()
    attempt.take(["step 5/10"])
    shown = view(attempt, job_status(progress=Progress(None, None, {"loss": "0.2"})))
    assert (shown.fraction, shown.metrics) == (0.5, {"loss": "0.2"})


def test_a_job_runs_since_its_training_started_until_it_ended() -> None:
    attempt = Attempt()
    assert view(attempt, job_status()).elapsed == 600, "it was created then"
    assert view(attempt, job_status(started="2024-01-01T00:09:00Z")).elapsed == 60
    ended = condition("Complete", at="2024-01-01T00:09:30Z")
    assert view(attempt, job_status(started="2024-01-01T00:09:00Z", conditions=ended)).elapsed == 30


def test_of_a_burst_of_lines_the_last_ones_are_read() -> None:
    """Reading 100,000 lines would take longer than writing them."""
    attempt = Attempt()
    attempt.take([f"step {number}/100000" for number in range(1, 100_001)])
    assert view(attempt, job_status()).fraction == 1
    attempt.partial = " 50%|#####     | 50/100 [00:12<00:15,  3.61it/s]"
    shown = view(attempt, job_status())
    assert (shown.fraction, shown.partial) == (0.5, attempt.partial)
