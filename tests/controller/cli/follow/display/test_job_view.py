"""What is shown of a job: what the training reports counts more than what its log tells."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from support.followed_jobs import condition, job_status

from trainmaster.controller.cli.follow.display.job_view import Attempt, JobView
from trainmaster.controller.cli.follow.job_status import JobStatus, Progress

NOW = datetime(2024, 1, 1, 0, 10, tzinfo=UTC)


def view(attempt: Attempt, status: JobStatus, *, now: float = 0) -> JobView:
    return attempt.view(status, "mnist", now=now, wall_clock=NOW)


def test_what_the_log_tells_is_shown() -> None:
    attempt = Attempt()
    attempt.read(["loading", "epoch 1/10 loss 0.3"], now=100)
    attempt.read(["epoch 2/10 loss 0.2"], now=160)
    shown = view(attempt, job_status(), now=160)
    assert shown.fraction == pytest.approx(0.2)
    assert shown.what == "epoch 2/10"
    assert shown.remaining == pytest.approx(480)


def test_what_the_training_reports_counts_more() -> None:
    attempt = Attempt()
    attempt.read(["epoch 2/10 loss 0.2"], now=100)
    shown = view(attempt, job_status(progress=Progress(47, 94, {"loss": "0.2"})))
    assert (shown.fraction, shown.remaining, shown.metrics) == (0.47, 94, {"loss": "0.2"})
    assert shown.what == "epoch 2/10"
    assert view(attempt, job_status(progress=Progress(170, None, {}))).fraction == 1


def test_metrics_alone_are_shown_with_what_the_log_tells() -> None:
    attempt = Attempt()
    attempt.read(["step 5/10"], now=100)
    shown = view(attempt, job_status(progress=Progress(None, None, {"loss": "0.2"})))
    assert (shown.fraction, shown.metrics) == (0.5, {"loss": "0.2"})


def test_a_job_runs_since_its_training_started_until_it_ended() -> None:
    attempt = Attempt()
    assert view(attempt, job_status()).elapsed == 600, "it was created then"
    assert view(attempt, job_status(started="2024-01-01T00:09:00Z")).elapsed == 60
    ended = condition("Complete", at="2024-01-01T00:09:30Z")
    assert view(attempt, job_status(started="2024-01-01T00:09:00Z", conditions=ended)).elapsed == 30
