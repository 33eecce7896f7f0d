"""When the pods of a TrainJob are read, for failures and for why they do not start, and what is told of that.

No pod is watched: most jobs are fine.

Guarantees:
- Pods are read when the status of the JobSet, which is watched anyway, says that something has failed, and once more
  when all ranks have had time to say why; and now and then while pods exist but do not get ready. What is healthy costs
  no request.
- Reads are few: `BURST` for each job at once, then one every `INTERVAL` seconds, and the one when it has failed. Of
  Jobs that have no pods, half a minute after they were seen, and then as rarely, events are read as well.
- What the status says stays, and is not told again, when another process takes over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

import structlog

from trainmaster.controller.condition_types import CONTAINER_FAILED, WAITING
from trainmaster.controller.explain.explanation import PATIENCE
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.ratelimit import KeyedRateLimiter
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.conditions import find_condition, is_true
from trainmaster.controller.reconciling.problems import EVENT_ACTION
from trainmaster.controller.reconciling.trainjobs.failed_pods import overcome, read_failed_pods, replaced
from trainmaster.controller.reconciling.trainjobs.first_failures import FirstFailures, read_condition
from trainmaster.controller.reconciling.trainjobs.refused_pods import read_refusals
from trainmaster.controller.reconciling.trainjobs.replicated_jobs import (
    Counts,
    counts_of,
    fails,
    is_ready,
    lacks_pods,
    stuck,
)
from trainmaster.controller.reconciling.trainjobs.waiting import waiting_condition
from trainmaster.runtime.api.constants import COMPLETE, FAILED
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

SETTLING: Final = 2.0
"""Seconds until the pods are read once more: the nodes of other ranks may tell later what happened earlier."""

FIRST_LOOK: Final = 10.0
LONGEST_INTERVAL: Final = 300.0
"""Seconds until pods that do not get ready are looked at, and between two such looks at most: a container that fails at
once is never ready, so that no status of a JobSet tells of it.
"""

BURST: Final = 6
INTERVAL: Final = 10.0
_BETWEEN_LOOKS: Final = 0.2  # seconds between those of all TrainJobs at pods that do not get ready
_MOST_JOBS: Final = 10_000  # of which the rate is known


class Reader(Protocol):
    """Reads pods and events from the server."""

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None,
        continue_token: str | None = None,
    ) -> JsonObject:
        """Read a collection, or a page of it; raises errors of the client."""


@dataclass(slots=True)
class _Job:
    """What is known of one TrainJob that is not simply ready."""

    uid: str
    """Of its JobSet."""

    attempt: int
    """How often the JobSet had been restarted when its pods were read last, or were ready."""

    first_failures: FirstFailures = field(default_factory=FirstFailures)
    was_read: bool = False
    due: float | None = None
    """When its pods are to be read because something failed."""

    settles: bool = False
    """Whether they are to be read once more after that."""

    look_due: float | None = None
    """When they are to be looked at because they do not get ready."""

    interval: float = FIRST_LOOK
    has_turn: bool = False
    """Whether it has its place among all TrainJobs that are looked at."""

    is_idle: bool = False
    """Whether none of its Jobs has had a pod yet."""

    waiting: JsonObject | None = None
    """The condition that tells why it waits, if that is known."""

    was_explained: bool = False
    """Whether this process has tried to find that out."""


class FirstFailureReporter:
    """Reads the pods of TrainJobs that fail; remembers, by key of the TrainJob, what it has told of them.

    Args:
        client: Whom it asks.
        recorder: Where events go.
        clock: The time.
    """

    def __init__(self, client: Reader, recorder: Recorder, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._started_at = clock.now()
        self._jobs: dict[str, _Job] = {}
        self._counts: dict[str, tuple[str, dict[str, Counts]]] = {}
        """The last state of JobSets, each with its UID, of which the status of the TrainJob does not tell yet."""

        self._limiter: KeyedRateLimiter[str] = KeyedRateLimiter(
            qps=1 / INTERVAL, burst=BURST, maxsize=_MOST_JOBS, clock=clock
        )
        self._next_look = 0.0
        """When somebody whose pods do not get ready may look next."""

    async def observe(
        self, key: str, trainjob: JsonObject, jobset: JsonObject, report: StatusReport
    ) -> tuple[FirstFailures | None, float | None]:
        """Take the state of a TrainJob that has not ended, and of its JobSet.

        Returns:
            What there is to tell of failures, None if nothing ever was, and in how many seconds to call this again
            although nothing changes.
        """
        uid, status, now = jobset["metadata"]["uid"], trainjob.get("status") or {}, jobset.get("status") or {}
        told = find_condition(status.get("conditions") or [], CONTAINER_FAILED)
        jobs, written_jobs = now.get("replicatedJobsStatus") or (), status.get("jobsStatus") or ()
        if (
            jobs == written_jobs
            and told is None
            and not report.conditions
            and self._is_unknown(key)
            and not (stuck(jobs) or lacks_pods(jobs))
        ):
            return None, None  # as nearly always, so it has to be quick
        completed, failed = is_true(report.conditions, COMPLETE), is_true(report.conditions, FAILED)
        if completed and not failed and told is None and key not in self._jobs:
            self._counts.pop(key, None)
            return None, None  # and so does an end without any failure
        counts, written = counts_of(jobs), counts_of(written_jobs)
        known = self._counts.pop(key, None)
        before = known[1] if known is not None and known[0] == uid else written
        if counts != written:
            self._counts[key] = (uid, counts)
        restarts = now.get("restarts") or 0
        job = self._jobs.get(key)
        if job is not None and job.uid != uid:
            job = self._jobs[key] = _Job(uid, restarts)
        if job is None and told is not None and told.get("status") == "True":
            job = self._jobs[key] = _Job(uid, restarts, read_condition(told))
        ready = is_ready(jobset, counts)
        rests = completed or any((each.get("spec") or {}).get("suspend") for each in (jobset, trainjob))
        fallen = failed or (not rests and fails(before, counts))
        starts = not failed and not rests
        waits, idles = starts and stuck(jobs), starts and lacks_pods(jobs)
        if job is None:
            if not fallen and not waits and not idles:
                return None, None
            job = self._jobs[key] = _Job(uid, restarts)
        unseen = restarts - job.attempt > job.first_failures.is_open  # a failure for which it was restarted
        self._schedule(job, fallen=fallen or unseen, anew=failed or restarts > job.attempt, stuck=waits, idle=idles)
        if self._is_due(key, job, ended=failed):
            await self._read(job, trainjob, jobset, attempt=restarts)
        if failed:
            job.first_failures.reopen()
        elif ready or completed:
            job.attempt = restarts
            job.first_failures.close()
        dues = [] if failed or rests else [each for each in (job.due, job.look_due) if each is not None]
        due = min(dues, default=None)
        if due is None and not job.was_read and not job.first_failures.told:
            del self._jobs[key]  # it was only slow to get ready
        return job.first_failures, None if due is None else max(due - self._clock.monotonic(), 0.0)

    def note_counts(self, key: str, jobset: JsonObject) -> None:
        """Take note of counts of a JobSet which the status of its TrainJob is to tell of later."""
        counts = counts_of((jobset.get("status") or {}).get("replicatedJobsStatus") or ())
        self._counts[key] = (jobset["metadata"]["uid"], counts)

    def note_status(self, key: str, status: JsonObject) -> None:
        """Take note of what the status of a TrainJob tells from now on."""
        known = self._counts.get(key)
        if known is not None and known[1] == counts_of(status.get("jobsStatus") or ()):
            del self._counts[key]

    def _is_unknown(self, key: str) -> bool:
        return key not in self._jobs and key not in self._counts

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._jobs.pop(key, None)
        self._counts.pop(key, None)

    def waiting(self, key: str, trainjob: JsonObject) -> JsonObject | None:
        """Return the condition that tells why a TrainJob waits; that which is stored, until it has been looked at."""
        job = self._jobs.get(key)
        if job is None or job.look_due is None:
            return None
        stored = find_condition((trainjob.get("status") or {}).get("conditions") or [], WAITING)
        return job.waiting if job.was_explained else stored

    def _schedule(self, job: _Job, *, fallen: bool, anew: bool, stuck: bool, idle: bool) -> None:
        now = self._clock.monotonic()
        if fallen and (anew or not job.first_failures.is_open):
            job.due, job.settles = now, True
        elif fallen:
            # It follows from a failure that is known.
            job.due = now + SETTLING if job.due is None else min(job.due, now + SETTLING)
        if not stuck and not idle:
            job.look_due, job.interval, job.has_turn = None, FIRST_LOOK, False
            job.waiting, job.was_explained = None, False
        elif job.look_due is None or (stuck and job.is_idle):
            job.look_due, job.is_idle = now + (FIRST_LOOK if stuck else PATIENCE.total_seconds()), idle

    def _is_due(self, key: str, job: _Job, *, ended: bool) -> bool:
        """Tell whether the pods are to be read now, and note when they are to be next."""
        now = self._clock.monotonic()
        if job.due is not None and now >= job.due:
            delay = 0.0 if ended else self._limiter.try_accept(key)
            if delay:
                job.due = now + delay
                return False
            job.due, job.settles = (now + SETTLING if job.settles else None), False
            return True
        if job.look_due is None or now < job.look_due:
            return False
        if not job.has_turn:
            job.look_due, job.has_turn = max(now, self._next_look), True
            self._next_look = job.look_due + _BETWEEN_LOOKS
            if now < job.look_due:
                return False
        job.has_turn = False
        job.interval = min(2 * job.interval, LONGEST_INTERVAL)
        job.look_due = now + job.interval
        return True

    async def _read(self, job: _Job, trainjob: JsonObject, jobset: JsonObject, *, attempt: int) -> None:
        pods = await read_failed_pods(self._client, self._clock, jobset)
        if pods is None:
            return
        failures = [failure for pod in pods for failure in pod.failures]
        if not job.was_read:
            # What has been overcome in the time of another process, that one has told of.
            job.first_failures.skip(each for each in overcome(pods, attempt) if _is_before(each.at, self._started_at))
        job.was_read, job.attempt = True, attempt
        for each in job.first_failures.note(failures, replaced(pods)):
            log.info("a container failed", failure=each.text)
            self._recorder.event(trainjob, type="Warning", reason=CONTAINER_FAILED, action=EVENT_ACTION, note=each.text)
        if job.look_due is not None:
            await self._explain(job, trainjob, jobset, [each.shown for each in pods])

    async def _explain(self, job: _Job, trainjob: JsonObject, jobset: JsonObject, pods: list[JsonObject]) -> None:
        """Find out why a TrainJob waits."""
        events = None if pods else await read_refusals(self._client, self._clock, jobset)
        job.was_explained = True
        job.waiting = waiting_condition(
            trainjob,
            jobset,
            pods,
            events,
            stored=job.waiting or find_condition((trainjob.get("status") or {}).get("conditions") or [], WAITING),
            failure_is_told=job.first_failures.is_open,
            now=self._clock.now(),
        )


def _is_before(at: str, moment: datetime) -> bool:
    return at < time_text(moment)
