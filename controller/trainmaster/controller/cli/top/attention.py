"""How much each job of a cluster needs somebody to look at it, and the orders in which jobs are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from functools import partial
from typing import Final

from trainmaster.controller.cli.jobs.rows import JobRow
from trainmaster.runtime.api.constants import COMPLETE, FAILED, SUSPENDED
from trainmaster.runtime.jobs.constants import SUCCEEDED

LATELY: Final = timedelta(hours=1)
"""For so long a failure is news."""


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


def attention(job: JobRow, now: datetime) -> Attention:
    """Return how much a job needs attention."""
    if job.state in {COMPLETE, SUCCEEDED}:
        return Attention.COMPLETE
    if job.state == FAILED:
        ended = datetime.fromisoformat(job.ended) if job.ended else None
        return Attention.FAILED_LATELY if ended is not None and now - ended < LATELY else Attention.FAILED
    if job.state == SUSPENDED:
        return Attention.SUSPENDED
    if job.trouble is not None:
        return Attention.TROUBLED
    return Attention.RUNNING if job.state == "Running" else Attention.WAITING


def ordered(jobs: Iterable[JobRow], order: Order, now: datetime) -> list[JobRow]:
    """Return jobs in an order; of those that are equal in it, the one that waits longest, or ended last, first."""
    by_attention = partial(_by_attention, now=now)
    keys: dict[Order, Callable[[JobRow], tuple[object, ...]]] = {
        Order.ATTENTION: by_attention,
        Order.NAME: lambda job: job.key[1:],
        Order.AGE: lambda job: (-_moment(job.created), *job.key[1:]),
        Order.RESTARTS: lambda job: (-job.restarts, *by_attention(job)),
        Order.PROGRESS: lambda job: (-_progress(job), *by_attention(job)),
    }
    return sorted(jobs, key=keys[order])


def _by_attention(job: JobRow, now: datetime) -> tuple[object, ...]:
    rank = attention(job, now)
    if rank in {Attention.FAILED_LATELY, Attention.FAILED, Attention.COMPLETE}:
        return rank, -_moment(job.ended or job.created), *job.key
    return rank, _moment(job.created), *job.key


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def _progress(job: JobRow) -> int:
    return -1 if job.progress is None or job.progress.percentage is None else job.progress.percentage
