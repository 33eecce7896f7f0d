"""Follows the TrainJobs of the caches, and publishes how they are and how long they take.

Guarantees:
- It is told by the events of the caches and asks nobody. An event that changes nothing of what counts costs a
  comparison; none costs more than a few microseconds, however many jobs there are.
- K-15: every replica follows the jobs, and only the one that leads counts (`lead`). So the gauges are right from the
  moment in which it does; what jobs had reached before, when another process led or none, is not counted again.
- K-15: each time is observed once: when the caches show for the first time that it is over. Times are those that the
  objects say, to the second, so that a manager that lags, or was away, does not falsify them; only that all pods are
  ready no object dates.
- What vanished unseen, was replaced under its name, or is another controller's now, is not counted any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Literal, NamedTuple

from trainmaster.controller.job_metrics.job_state import (
    END,
    JOBSET,
    PROGRESS,
    RUNNING,
    RUNNING_STATE,
    SUSPENDED_STATE,
    WAITING_STATE,
    Milestones,
    perhaps_reached,
    reached,
    state_of,
)
from trainmaster.controller.job_metrics.trainjob_facts import UNKNOWN, Failure, TrainJobFacts, read_trainjob
from trainmaster.controller.job_metrics.workload_facts import (
    Demand,
    WorkloadFacts,
    read_workload,
)
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.clock import Clock, parse_time
from trainmaster.controller.resilience.goodput import KINDS, goodput_of
from trainmaster.metrics import trainjobs as families
from trainmaster.metrics.series import Histogram
from trainmaster.runtime.api.constants import FAILED
from trainmaster.runtime.jsontree import JsonObject

_NOTHING = Demand()


class _Asked(NamedTuple):
    """As what the pods of a job are counted in the gauges."""

    runtime: str
    running: Demand
    waiting: Demand
    waiting_state: str


_NOTHING_ASKED = _Asked("", _NOTHING, _NOTHING, WAITING_STATE)


@dataclass(slots=True, eq=False)
class _Job:
    """What is known of one TrainJob."""

    facts: TrainJobFacts
    reached: Milestones = 0
    counted: tuple[str, str, str] | None = None
    """By which state, reason and runtime it is counted in the gauges."""

    asked: _Asked = _NOTHING_ASKED
    suspended_since: str | None = None
    """When the suspension began of which its condition tells; None while it tells of none."""

    never_resumed: bool = False
    """Whether it was created suspended, and has been ever since."""

    workload: str = ""
    """The UID of the JobSet that is known."""

    restarts: int = 0
    uncounted_restarts: int = 0
    """Restarts of which the cause is not known yet."""


class TrainJobObserver:
    """Follows all TrainJobs that a manager serves.

    Args:
        trace_id: Returns the trace that tells of the TrainJob with a UID, for exemplars; empty if none does.
    """

    def __init__(
        self,
        metrics: families.TrainJobsMetrics,
        *,
        clock: Clock,
        trace_id: Callable[[str], str],
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._trace_id = trace_id
        self._leads = False
        self._jobs: dict[str, _Job] = {}
        self._workloads: dict[str, WorkloadFacts] = {}
        """JobSets by their key, which is that of their TrainJob."""

    def lead(self) -> None:
        """Count from now on: this process leads."""
        self._leads = True
        self._metrics.publish()

    def close(self) -> None:
        """Count nothing any more: the manager ends."""
        self._leads = False
        self._metrics.withdraw()

    def on_trainjob_event(self, change: Delta) -> None:
        """Handle an event of a TrainJob."""
        key, raw = change.key, change.new
        facts = None if raw is None else read_trainjob(raw)
        job = self._jobs.get(key)
        if job is not None and (facts is None or facts.uid != job.facts.uid):
            self._forget(key, job)
            job = None
        if facts is None:
            return
        if job is not None and job.facts == facts:
            return
        is_known, workload = self._is_known(change), _owned(self._workloads.get(key), facts)
        failure = facts.failure
        if job is None:
            job = self._jobs[key] = _Job(facts)
            if is_known:
                job.reached = perhaps_reached(facts, workload)
        else:
            failure = failure or job.facts.failure  # what has just been overcome is why it was started again
            job.facts = facts
        ends = bool(facts.end) and not (is_known or job.reached & END)
        self._update(key, job, facts, workload, failure, is_known=is_known)
        if ends and raw is not None and ((raw.get("status") or {}).get("resilience") or {}).get("goodput"):
            self._count_seconds(key, facts, raw)

    def on_workload_event(self, change: Delta) -> None:
        """Handle an event of a JobSet."""
        key, raw = change.key, change.new
        known = self._workloads.get(key)
        facts = None if raw is None else read_workload(raw, known)
        if facts == known:
            return
        if facts is None:
            del self._workloads[key]
        else:
            self._workloads[key] = facts
        job = self._jobs.get(key)
        if job is not None:
            is_known, job_facts = self._is_known(change), job.facts
            workload = _owned(facts, job_facts)
            if is_known and known is None:
                job.reached |= perhaps_reached(job_facts, workload)
            self._update(key, job, job_facts, workload, job_facts.failure, is_known=is_known)

    def _is_known(self, change: Delta) -> bool:
        """Whether what an event shows was there before this process had to count it."""
        return not self._leads or change.initial

    def _update(
        self,
        key: str,
        job: _Job,
        facts: TrainJobFacts,
        workload: WorkloadFacts | None,
        failure: Failure | None,
        *,
        is_known: bool,
    ) -> None:
        runtimes = self._metrics.runtimes
        # Only names of which something was built: a name that somebody misspelt takes no place.
        runtime = runtimes.find(facts.runtime) if workload is None else runtimes.admit(facts.runtime)
        now = reached(facts, workload)
        news = now & ~job.reached
        job.reached |= now
        if news and not is_known:
            self._observe(key, facts, workload, runtime, news)
        if facts.wants_suspend or facts.suspended or job.suspended_since is not None or job.never_resumed:
            self._follow_suspension(key, job, facts, runtime, is_known=is_known)
        if facts.restarts or (workload is not None and (workload.restarts or workload.uid != job.workload)):
            self._follow_restarts(job, facts, workload, is_known=is_known)
        if job.uncounted_restarts and (failure or facts.end or (workload is not None and workload.is_ready)):
            self._count_restarts(key, job, facts, failure, runtime)
        self._recount(job, facts, workload, runtime)

    def _observe(
        self, key: str, facts: TrainJobFacts, workload: WorkloadFacts | None, runtime: str, news: Milestones
    ) -> None:
        exemplar = self._exemplar(key, facts)
        if news & JOBSET and workload is not None:
            _time(families.TIME_TO_JOBSET, facts, workload.created, runtime, exemplar=exemplar)
        if news & RUNNING:
            _time(families.TIME_TO_RUNNING, facts, self._clock.now(), runtime, exemplar=exemplar)
        if news & PROGRESS:
            _time(families.TIME_TO_PROGRESS, facts, facts.progressed, runtime, exemplar=exemplar)
        if news & END:
            _time(families.TIME_TO_END, facts, facts.ended, runtime, facts.end, exemplar=exemplar)
            if facts.end == FAILED:
                families.count(families.FAILURES, *(facts.failure or UNKNOWN), runtime, exemplar=exemplar)

    def _count_seconds(self, key: str, facts: TrainJobFacts, raw: JsonObject) -> None:
        """Count what the time of a job was spent on that has just ended, as its status keeps it."""
        goodput = goodput_of(raw, now=self._clock.now())
        labels = self._metrics.runtimes.find(facts.runtime), self._metrics.queues.admit(facts.queue)
        for kind, field in KINDS.items():
            seconds = goodput.get(field, 0)
            families.count(families.SECONDS, kind, *labels, exemplar=self._exemplar(key, facts), by=seconds)

    def _follow_suspension(self, key: str, job: _Job, facts: TrainJobFacts, runtime: str, *, is_known: bool) -> None:
        if facts.wants_suspend and facts.generation == 1:
            job.never_resumed = True
        if facts.suspended:
            if job.suspended_since is None:
                job.suspended_since = facts.suspension_flipped
        elif job.suspended_since is not None:
            histogram, since = families.SUSPENSION, job.suspended_since
            if job.never_resumed:
                histogram, since = families.QUEUE_WAIT, facts.created
            job.suspended_since, job.never_resumed = None, False
            seconds = _seconds(since, facts.suspension_flipped)
            if seconds is not None and not is_known and not facts.end:
                families.observe(histogram, seconds, runtime, exemplar=self._exemplar(key, facts))
        elif not facts.wants_suspend:
            job.never_resumed = False  # it was resumed before anybody noted that it was suspended

    @staticmethod
    def _follow_restarts(job: _Job, facts: TrainJobFacts, workload: WorkloadFacts | None, *, is_known: bool) -> None:
        """Follow the count of the status, and of the JobSet, which is ahead of it; another JobSet counts anew."""
        restarts = facts.restarts
        if workload is not None:
            if job.workload != workload.uid:
                job.workload, job.restarts = workload.uid, min(job.restarts, restarts)
            restarts = max(restarts, workload.restarts)
        if restarts > job.restarts and not is_known:
            job.uncounted_restarts += restarts - job.restarts
        job.restarts = max(restarts, job.restarts)

    def _count_restarts(self, key: str, job: _Job, facts: TrainJobFacts, failure: Failure | None, runtime: str) -> None:
        """Count restarts by what is known of their cause; the pods tell of it a little later than the JobSet."""
        exemplar, cause = self._exemplar(key, facts), failure or UNKNOWN
        families.count(families.RESTARTS, *cause, runtime, exemplar=exemplar, by=job.uncounted_restarts)
        job.uncounted_restarts = 0

    def _recount(self, job: _Job, facts: TrainJobFacts, workload: WorkloadFacts | None, runtime: str) -> None:
        state, reason = state_of(facts, workload, has_run=bool(job.reached & RUNNING))
        counted = state, reason, runtime
        if counted != job.counted:
            if job.counted is not None:
                self._metrics.jobs.add(-1, *job.counted)
            self._metrics.jobs.add(1, *counted)
            job.counted = counted
        if workload is None or facts.end:
            self._ask(job, _NOTHING_ASKED)
        else:
            waiting_state = SUSPENDED_STATE if facts.wants_suspend else WAITING_STATE
            self._ask(job, _Asked(runtime, workload.running, workload.waiting, waiting_state))

    def _ask(self, job: _Job, asked: _Asked) -> None:
        """Count what a job asks for now instead of what it asked for before."""
        if asked != job.asked:
            if job.asked is not _NOTHING_ASKED:
                self._count(job.asked, -1)
            if asked is not _NOTHING_ASKED:
                self._count(asked, 1)
            job.asked = asked

    def _forget(self, key: str, job: _Job) -> None:
        if job.counted is not None:
            if job.uncounted_restarts:
                self._count_restarts(key, job, job.facts, job.facts.failure, job.counted[2])
            self._metrics.jobs.add(-1, *job.counted)
        self._ask(job, _NOTHING_ASKED)
        del self._jobs[key]

    def _count(self, asked: _Asked, by: Literal[1, -1]) -> None:
        metrics, runtime = self._metrics, asked.runtime
        for state, demand in ((RUNNING_STATE, asked.running), (asked.waiting_state, asked.waiting)):
            if demand.nodes:
                metrics.nodes.add(by * demand.nodes, state, runtime)
                for resource, amount in demand.accelerators:
                    metrics.count_accelerators(by * amount, state, resource, runtime)

    def _exemplar(self, key: str, facts: TrainJobFacts) -> dict[str, str]:
        return families.exemplar_of(key, self._trace_id(facts.uid))


def _owned(workload: WorkloadFacts | None, facts: TrainJobFacts) -> WorkloadFacts | None:
    """Return a workload if it is that of a TrainJob, not of an earlier one of its name."""
    return workload if workload is not None and workload.owner == facts.uid else None


def _time(
    histogram: Histogram, facts: TrainJobFacts, until: str | datetime, *labels: str, exemplar: dict[str, str]
) -> None:
    """Observe how long something took since the creation of a TrainJob, if its times are some."""
    if (seconds := _seconds(facts.created, until)) is not None:
        families.observe(histogram, seconds, *labels, exemplar=exemplar)


def _seconds(since: str, until: str | datetime) -> float | None:
    """Return the seconds between two times; none less than 0, and None if one of them is no time."""
    try:
        end = until if isinstance(until, datetime) else _moment(until)
        return max((end - _moment(since)).total_seconds(), 0.0)
    except ValueError:
        return None


# What happens at once has the same times.
_moment = lru_cache(1024)(parse_time)
