"""What a display shows of a job at a moment: its status, with what it reports or its log tells of its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.controller.cli.follow.display.durations import seconds_between
from trainmaster.controller.cli.follow.display.progress import LogProgress, Pace
from trainmaster.controller.cli.follow.job_status import JobStatus


@dataclass(frozen=True, slots=True)
class JobView:
    """What is shown of a job at a moment."""

    status: JobStatus
    name: str
    elapsed: float | None = None
    """Seconds since it started."""

    fraction: float | None = None
    """How much is done, from 0 to 1; None if that is unknown."""

    what: str = ""
    """Of what: an epoch, a loop; empty for all of it."""

    steps: str = ""
    """How far the innermost loop is."""

    remaining: float | None = None
    """Seconds; None if nobody knows."""

    metrics: Mapping[str, str] = field(default_factory=dict)
    partial: str = ""
    """The last line of its log, while that is not ended."""


class Attempt:
    """What the log of one attempt of a training has told so far."""

    def __init__(self, restarts: int = 0) -> None:
        self.restarts = restarts
        self.partial = ""
        self._progress = LogProgress()
        self._pace = Pace()

    def read(self, lines: Sequence[str], now: float) -> None:
        """Take lines of the log, at a moment in seconds of any clock."""
        for line in lines:
            self._progress.feed(line)
        if self._progress.fraction is not None and self._progress.is_whole:
            self._pace.observe(self._progress.fraction, now)

    def view(self, status: JobStatus, name: str, *, now: float, wall_clock: datetime) -> JobView:
        """Put together what is shown; what the training reports of itself counts more than what its log tells."""
        elapsed = seconds_between(status.started or status.job.created, status.ended or wall_clock)
        told, reported = self._progress, status.progress
        if reported is not None and reported.percentage is not None:
            return JobView(
                status,
                name,
                elapsed=elapsed,
                fraction=min(1.0, max(0.0, reported.percentage / 100)),
                what=told.what if told.is_whole else "",
                remaining=reported.remaining_seconds,
                metrics=reported.metrics,
                partial=self.partial,
            )
        remaining = told.remaining
        if remaining is None and told.is_whole:
            remaining = self._pace.remaining(now)
        return JobView(
            status,
            name,
            elapsed=elapsed,
            fraction=told.fraction,
            what=told.what,
            steps=told.steps,
            remaining=remaining,
            metrics=reported.metrics if reported is not None else {},
            partial=self.partial,
        )
