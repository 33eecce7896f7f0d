"""Which jobs need attention, and in which order jobs are shown; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Final

from trainmaster.controller.cli.jobs.rows import JobRow
from trainmaster.controller.cli.top.job_table import Trouble
from trainmaster.runtime.api.constants import COMPLETE, FAILED, SUSPENDED
from trainmaster.runtime.jobs.constants import SUCCEEDED

LATELY: Final = timedelta(hours=1)
"""For so long a failure is news."""


@dataclass(frozen=True, slots=True)
class TopJob:
    """A job as it is shown."""

    row: JobRow
    trouble: Trouble | None
    argument: str
    """What to write after a command to mean it, beside the namespace."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.row.kind, self.row.namespace, self.row.name


class Attention(IntEnum):
    """How much a job needs somebody to look at it; the smaller, the more."""

    TROUBLED = 0
    """It goes on, and something stands in its way."""

    FAILED_LATELY = 1
    WAITING = 2
    RUNNING = 3
    SUSPENDED = 4
    FAILED = 5
    COMPLETE = 6

    @property
    def word(self) -> str:
        """As it stands behind a number of jobs."""
        return _WORDS[self]


_WORDS: Final = {
    Attention.TROUBLED: "in trouble",
    Attention.FAILED_LATELY: "failed lately",
    Attention.WAITING: "waiting",
    Attention.RUNNING: "running",
    Attention.SUSPENDED: "suspended",
    Attention.FAILED: "failed before",
    Attention.COMPLETE: "complete",
}


class Order(StrEnum):
    """An order of jobs."""

    ATTENTION = "attention"
    NAME = "name"
    AGE = "age"
    RESTARTS = "restarts"
    PROGRESS = "progress"


def attention(job: TopJob, now: datetime) -> Attention:
    """Return how much a job needs attention."""
    row = job.row
    if row.state in {COMPLETE, SUCCEEDED}:
        return Attention.COMPLETE
    if row.state == FAILED:
        ended = datetime.fromisoformat(row.ended) if row.ended else None
        return Attention.FAILED_LATELY if ended is not None and now - ended < LATELY else Attention.FAILED
    if row.state == SUSPENDED:
        return Attention.SUSPENDED
    if job.trouble is not None:
        return Attention.TROUBLED
    return Attention.RUNNING if row.state == "Running" else Attention.WAITING


def ordered(jobs: Iterable[TopJob], order: Order, now: datetime) -> list[TopJob]:
    """Return jobs in an order; of those that are equal in it, the one that waits longest, or ended last, first."""
    by: Callable[[TopJob], tuple[object, ...]]
    match order:
        case Order.NAME:
            by = lambda job: job.key[1:]  # noqa: E731
        case Order.AGE:
            by = lambda job: (-_moment(job.row.created), *job.key[1:])  # noqa: E731
        case Order.RESTARTS:
            by = lambda job: (-job.row.restarts, *_by_attention(job, now))  # noqa: E731
        case Order.PROGRESS:
            by = lambda job: (-_progress(job), *_by_attention(job, now))  # noqa: E731
        case _:
            by = lambda job: _by_attention(job, now)  # noqa: E731
    return sorted(jobs, key=by)


def matching(jobs: Sequence[TopJob], text: str) -> list[TopJob]:
    """Return the jobs in which all words of a text occur: in names, kind, state, or what stands in the way."""
    words = text.lower().split()
    return [job for job in jobs if all(word in _searched(job) for word in words)] if words else list(jobs)


def _searched(job: TopJob) -> str:
    trouble = "" if job.trouble is None else f"{job.trouble.cause} {job.trouble.text}"
    return f"{job.row.namespace}/{job.row.name} {job.row.kind} {job.row.state} {trouble}".lower()


def _by_attention(job: TopJob, now: datetime) -> tuple[object, ...]:
    rank = attention(job, now)
    if rank in {Attention.FAILED_LATELY, Attention.FAILED, Attention.COMPLETE}:
        return rank, -_moment(job.row.ended or job.row.created), *job.key
    return rank, _moment(job.row.created), *job.key


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def _progress(job: TopJob) -> int:
    progress = job.row.progress
    return -1 if progress is None or progress.percentage is None else progress.percentage
