"""What a display shows of a job at a moment: its status, with what it reports or its log tells of its progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from trainmaster.controller.cli.follow.display.durations import seconds_between
from trainmaster.controller.cli.follow.display.progress import LogProgress, Pace
from trainmaster.controller.cli.follow.job_status import JobStatus

_READ_AT_ONCE: Final = 200
"""Lines that are read for progress between two looks; whoever prints more of them prints another counter soon."""


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
        self._unread: deque[str] = deque(maxlen=_READ_AT_ONCE)
        self._progress = LogProgress()
        self._pace = Pace()

    def take(self, lines: Sequence[str]) -> None:
        """Take lines of the log."""
        self._unread.extend(lines[-_READ_AT_ONCE:])

    def _read(self, now: float) -> None:
        for line in (*self._unread, self.partial):
            self._progress.feed(line)
        self._unread.clear()
        if self._progress.fraction is not None and self._progress.is_whole:
            self._pace.observe(self._progress.fraction, now)

    def view(self, status: JobStatus, name: str, *, now: float, wall_clock: datetime) -> JobView:
        """Put together what is shown; what the training reports of itself counts more than what its log tells.

        Args:
            status: The job.
            name: What it is called.
            now: The moment, in seconds of any clock.
            wall_clock: The same by the clock of the server, or one near to it.
        """
        self._read(now)
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
