"""The jobs of a cluster as rows, each brought up to date when it has changed, with what stands in its way, and in which
order they are shown.

- Explaining a job takes about a millisecond: of thousands that have changed at once, some are looked at with every
  drawing, so that nobody waits for all.
- What `trainmaster explain` concludes of a job, its workload and its pods comes first; it looks at more when it is
  asked for one job. What nobody explains is told by the condition that is the state of the job.
- What waits, and is not explained by anything yet, is asked about again: some causes are told by time alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from functools import partial
from typing import Final

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.rows import JobRow, job_row, may_be_troubled, trouble_of
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api.constants import COMPLETE, FAILED, SUSPENDED
from trainmaster.runtime.jobs.constants import SUCCEEDED
from trainmaster.runtime.jsontree import JsonObject

LATELY: Final = timedelta(hours=1)
"""For so long a failure is news."""

ASK_AGAIN: Final = 10.0
"""Seconds after which a job that waits is explained again."""

_LOOK_FOR: Final = 0.2
"""Seconds that go into looking at jobs at a time."""

Key = tuple[Resource, str]
"""A kind of jobs, and namespace and name."""


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


class JobTable:
    """The rows of all jobs."""

    def __init__(
        self,
        jobs: Mapping[Resource, Store],
        jobsets: Store,
        pods_of: Callable[[Job], list[JsonObject]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._jobsets = jobsets
        self._pods_of = pods_of
        self._monotonic = monotonic
        self._rows: dict[Key, JobRow] = {}
        self._changed: dict[Key, None] = {}
        self._unexplained: dict[Key, float] = {}
        """When those were asked about that wait for no known reason."""

    @property
    def rows(self) -> list[JobRow]:
        """Those of the jobs that were looked at, in no order."""
        return list(self._rows.values())

    @property
    def is_up_to_date(self) -> bool:
        """Whether every job has been looked at since it last changed."""
        return not self._changed

    def mark(self, kind: Resource, key: str) -> None:
        """Take note that something has changed of a job."""
        self._changed[kind, key] = None

    def bring_up_to_date(self, now: datetime) -> None:
        """Look at some of what has changed, and at what is to be asked about again."""
        began = self._monotonic()
        for key in [*self._changed, *(key for key, at in self._unexplained.items() if began - at > ASK_AGAIN)]:
            self._look(key, now)
            if self._monotonic() - began > _LOOK_FOR:
                return

    def _look(self, key: Key, now: datetime) -> None:
        kind, name = key
        self._changed.pop(key, None)
        self._unexplained.pop(key, None)
        obj = self._jobs[kind].get(name) if kind in self._jobs else None
        if obj is None:
            self._rows.pop(key, None)
            return
        job = Job(obj, kind)
        pods, jobset = self._pods_of(job), self._jobsets.get(name) if job.is_trainjob else None
        row = job_row(job, pods, jobset, now)
        if may_be_troubled(job, row):
            row = replace(row, trouble=trouble_of(job, pods=pods, jobset=jobset, now=now))
            if row.trouble is None and not row.has_ended:
                self._unexplained[key] = self._monotonic()
        self._rows[key] = row
