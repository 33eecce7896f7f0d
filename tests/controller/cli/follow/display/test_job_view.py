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
