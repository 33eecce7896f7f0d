"""When the pods of a TrainJob and the events about it are read, for failures and for why it does not start.

Reconcilers observe what was found like a cache, and read nothing themselves. What they observe of a job that waits or
fails has it looked at; a finding has its key reconciled again. No pod is watched: most jobs are fine.

Guarantees:
- Pods are read when the status of the JobSet, which is watched anyway, says that something has failed, and once more
  when all ranks have had time to say why; and now and then while pods exist but do not get ready. What is healthy costs
  no request.
- Reads are few: `BURST` for each job at once, then one every `INTERVAL` seconds, and the one when it has failed. Of
  Jobs that have no pods, half a minute after they were seen, and then as rarely, events are read as well; and those of
  a JobSet that lacks Jobs which may be refused, a few seconds after it was seen, and ever more rarely from then on.
- The end of a TrainJob that has failed is held back until its pods were read, for `HELD` seconds at most: whoever
  takes the cause of its end from its conditions finds it there. If that takes longer it is added later. While all that
  is known is that a rank was lost, and some go on, their pods are read every `PEER_READ` seconds of these.
- Pods that cannot be read after a failure are read again, ever more rarely, for `READING` seconds. If the job has ended
  by then, its end says that its cause is not known. Without the right to read pods they are read once.
- A process that takes over reads once the pods of jobs that have failed in the last `LATELY` seconds and whose end does
  not say why.
- What is found of a job that is deleted meanwhile, or made again under its name, is dropped: the UIDs of TrainJob and
  JobSet count, as the caches show them once the answer is there. So nothing is kept of what is gone.
- What the status says stays, and is not told again, when another process takes over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from trainmaster.controller.conditions import CONTAINER_FAILED, WAITING, find_condition, is_true, stored_status
from trainmaster.controller.diagnosis.counts import Counts, counts_of, fails, is_ready, lacks_pods, stuck
from trainmaster.controller.diagnosis.first_failures import FirstFailures, lacks_cause, read_condition
from trainmaster.controller.diagnosis.reading import (
    PodFailures,
    Unread,
    overcome,
    read_failed_pods,
    read_refused_jobs,
    read_refused_pods,
    replaced,
)
from trainmaster.controller.diagnosis.waiting import waiting_condition
from trainmaster.controller.explain.findings import Event
from trainmaster.controller.explain.pods import is_running
from trainmaster.controller.explain.state import PATIENCE
from trainmaster.controller.explain.view import JobView
from trainmaster.controller.kube.cache.store import StoreReader, parse_resource_version
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.ratelimit import KeyedRateLimiter
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.runtime.api.constants import COMPLETE, FAILED
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

WORKERS: Final = 4
"""Jobs that are looked at at the same time."""

HELD: Final = 3.0
"""Seconds for which the end of a job is held back at most."""

SECOND_READ: Final = 2.0
"""Seconds until the pods are read once more: the nodes of other ranks may tell later what happened earlier."""

PEER_READ: Final = 0.4
"""Seconds until pods are read again for the end of a rank that was lost, which may be gone half a second later."""

READING: Final = 240.0
"""Seconds for which pods are read again that cannot be read; an API server is away for less, as a rule, and after five
minutes all has been told of an end.
"""

LATELY: Final = 600.0
"""Seconds for which a process that takes over looks back: more than the change of a leader takes."""

FIRST_LOOK: Final = 10.0
FIRST_LOOK_FOR_JOBS: Final = 5.0
LONGEST_INTERVAL: Final = 300.0
"""Seconds until pods that do not get ready, or Jobs that are not there, are looked at, and between two such looks at
most: a container that fails at once is never ready, so that no status of a JobSet tells of it, and JobSet's controller
tries again after up to 17 minutes.
"""

BURST: Final = 6
INTERVAL: Final = 10.0
_BETWEEN_LOOKS: Final = 0.2  # seconds between those of all TrainJobs that nothing has happened to
_ACTION: Final = "Reconciling"
_MOST_JOBS: Final = 10_000  # of which the rate is known


class Findings(NamedTuple):
    """What was found about one TrainJob."""

    first_failures: FirstFailures | None = None
    """What there is to tell of failures; None: nothing new is known of that."""

    waiting: JsonObject | None = None
    """The condition that tells why it waits, if it does and that is known."""

    held_for: float | None = None
    """For how many seconds its end is not to be told yet."""


NOTHING: Final = Findings()


@dataclass(slots=True)
class _Look:
    """When something that waits is looked at next."""

    due: float
    interval: float
    has_turn: bool = False
    """Whether it has its place among all TrainJobs that are looked at."""

    is_idle: bool = False
    """Whether there are no pods to look at yet."""


@dataclass(slots=True)
class _Job:
    """What is known of one TrainJob that is not simply ready."""

    uid: str
    """Of its JobSet."""

    attempt: int = 0
    """How often the JobSet had been restarted when its pods were read last, or were ready."""

    first_failures: FirstFailures = field(default_factory=FirstFailures)
    was_read: bool = False
    due: float | None = None
    """When its pods are to be read because something failed."""

    failing_as_of: int = 0
    """The resource version at which a failure was not overcome yet."""

    is_read_twice: bool = False
    """Whether they are to be read once more after that."""

    unread_since: float | None = None
    """Since when they cannot be read."""

    pods: _Look | None = None
    """At pods that do not get ready, or of which none is there."""

    waiting: JsonObject | None = None
    """The condition that tells why it waits, if that is known; until it was looked at, what the status says."""

    jobs: _Look | None = None
    """At Jobs that are not there."""

    refusal: str | None = None
    """Why, if that is known."""

    ended_at: float | None = None
    """When it was seen that it has failed."""

    was_read_at_end: bool = False
    is_taken_over: bool = False
    """Whether another process told its end, without the cause: it is kept, so that its pods are read once."""

    def is_ahead_of(self, jobset: JsonObject) -> bool:
        """Whether a failure is known that a state of the JobSet, which may be late, cannot tell of yet."""
        return parse_resource_version(jobset["metadata"].get("resourceVersion")) < self.failing_as_of

    @property
    def is_unread_at_end(self) -> bool:
        """Whether it has failed, and its pods are still to be read for the reason."""
        return self.ended_at is not None and not self.was_read_at_end

    @property
    def earliest(self) -> float | None:
        """When something of it is to be read next."""
        dues = [self.due, *(look.due for look in (self.pods, self.jobs) if look is not None)]
        return min((due for due in dues if due is not None), default=None)


class Diagnosis:
    """Knows what was found about TrainJobs, and reads what is due of them.

    Args:
        jobsets: The cache of JobSets, which have the keys of their TrainJobs.
    """

    def __init__(
        self,
        client: KubeClient,
        queue: WorkQueue,
        *,
        trainjobs: StoreReader,
        jobsets: StoreReader,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._queue = queue
        self._trainjobs = trainjobs
        self._jobsets = jobsets
        self._recorder = recorder
        self._clock = clock
        self.on_finding: Callable[[str], object] = lambda _key: None
        """Called with the key of a TrainJob that was looked at."""

        self._leads_since = clock.now()
        self._jobs: dict[str, _Job] = {}
        self._counts: dict[str, tuple[str, dict[str, Counts]]] = {}
        """The last state of JobSets, each with its UID, of which the status of the TrainJob does not tell yet."""

        self._limiter: KeyedRateLimiter[str] = KeyedRateLimiter(
            qps=1 / INTERVAL, burst=BURST, maxsize=_MOST_JOBS, clock=clock
        )
        self._next_turn = 0.0
        """When somebody to whom nothing has happened may look next."""

    def on_start(self) -> None:
        """Note that this process leads from now on: of what was overcome before, another one has told."""
        self._leads_since = self._clock.now()

    # What reconcilers observe

    def observe(self, key: str, trainjob: JsonObject, jobset: JsonObject, report: StatusReport) -> Findings:
        """Take the state of a TrainJob that has not ended, and of its JobSet; return what was found about it."""
        uid, status, now = jobset["metadata"]["uid"], trainjob.get("status") or {}, jobset.get("status") or {}
        told = find_condition(status.get("conditions") or [], CONTAINER_FAILED)
        jobs, written = now.get("replicatedJobsStatus") or (), status.get("jobsStatus") or ()
        job, is_stuck, is_idle = self._jobs.get(key), stuck(jobs), lacks_pods(jobs)
        is_new = job is None and told is None
        if is_new and jobs == written and not (report.conditions or key in self._counts or is_stuck or is_idle):
            return NOTHING  # as nearly always, so it has to be quick
        completed, failed = is_true(report.conditions, COMPLETE), is_true(report.conditions, FAILED)
        if is_new and completed and not failed:
            self._counts.pop(key, None)
            return NOTHING  # and so does an end without any failure
        counts, restarts = counts_of(jobs), now.get("restarts") or 0
        before = self._before(key, uid, counts, counts_of(written))
        rests = completed or any((each.get("spec") or {}).get("suspend") for each in (jobset, trainjob))
        fallen = failed or (not rests and fails(before, counts))
        waits = (is_stuck or is_idle) and not failed and not rests
        if job is not None and job.uid != uid:
            job = self._jobs[key] = _Job(uid, restarts)
        elif job is None and told is not None and told.get("status") == "True":
            job = self._jobs[key] = _Job(uid, restarts, read_condition(told))
        elif job is None and (fallen or waits):
            job = self._jobs[key] = _Job(uid, restarts)
        if job is None:
            return NOTHING
        if failed and job.ended_at is None:
            job.ended_at = self._clock.monotonic()
        elif failed:
            fallen = False  # that is known, and its pods are read, or were
        unseen = restarts - job.attempt > job.first_failures.is_open  # a failure for which it was restarted
        self._schedule_read(job, fallen=fallen or unseen, anew=failed or restarts > job.attempt)
        self._schedule_look(job, trainjob, waits=waits, is_idle=not is_stuck)
        if failed:
            job.first_failures.reopen()
        elif completed or (is_ready(jobset, counts) and not job.is_ahead_of(jobset)):
            job.attempt = restarts
            job.first_failures.close()
        if failed or not rests:
            self._ask(key)
        is_due = job.jobs is not None or (not rests and (job.due is not None or job.pods is not None))
        if not failed and not is_due and not job.was_read and not job.first_failures.told:
            del self._jobs[key]  # it was only slow to get ready
        held_for = (job.ended_at or 0.0) + HELD - self._clock.monotonic() if job.is_unread_at_end else 0.0
        return Findings(job.first_failures, job.waiting, held_for if held_for > 0 else None)

    def observe_ended(self, key: str, trainjob: JsonObject, jobset: JsonObject | None) -> Findings:
        """Return what was found about a TrainJob only after its end was told."""
        job = self._jobs.get(key)
        if job is None and jobset is not None and lacks_cause(trainjob, jobset, self._leads_since, within=LATELY):
            now = self._clock.monotonic()
            job = self._jobs[key] = _Job(jobset["metadata"]["uid"], due=now, ended_at=now, is_taken_over=True)
            self._ask(key)
        return NOTHING if job is None or job.is_unread_at_end else Findings(job.first_failures)

    def refusal(self, key: str, jobset: JsonObject | None) -> str | None:
        """Take a JobSet that lacks Jobs, None if it lacks none; return why, if that is known."""
        job = self._jobs.get(key)
        if jobset is None:
            if job is not None:
                job.jobs = job.refusal = None
            return None
        uid = jobset["metadata"]["uid"]
        if job is None or job.uid != uid:
            job = self._jobs[key] = _Job(uid, (jobset.get("status") or {}).get("restarts") or 0)
        if job.jobs is None:
            job.jobs = _Look(self._clock.monotonic() + FIRST_LOOK_FOR_JOBS, FIRST_LOOK_FOR_JOBS)
            self._ask(key)
        return job.refusal

    def keep_counts(self, key: str, jobset: JsonObject) -> None:
        """Take note of counts of a JobSet which the status of its TrainJob is to tell of later."""
        counts = counts_of((jobset.get("status") or {}).get("replicatedJobsStatus") or ())
        self._counts[key] = (jobset["metadata"]["uid"], counts)

    def on_status_written(self, key: str, status: JsonObject) -> None:
        """Take note of what the status of a TrainJob tells from now on; once it tells the end, nothing else is kept."""
        known = self._counts.get(key)
        if known is not None and known[1] == counts_of(status.get("jobsStatus") or ()):
            del self._counts[key]
        conditions = status.get("conditions") or []
        if not is_true(conditions, COMPLETE) and not is_true(conditions, FAILED):
            return
        job = self._jobs.get(key)
        if job is None or not (job.is_taken_over or job.is_unread_at_end or job.first_failures.is_untold(conditions)):
            self.forget(key)

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._jobs.pop(key, None)
        self._counts.pop(key, None)

    # What a worker does

    async def read(self, key: str) -> float | None:
        """Read what is due about a TrainJob, and have it reconciled again if something was.

        Returns:
            The seconds until something else is due; None: nothing is.
        """
        has_read_pods = await self._read_pods(key)
        if await self._read_events(key) or has_read_pods:
            self.on_finding(key)
        due = self.next_due(key)
        return None if due is None else max(due - self._clock.monotonic(), _BETWEEN_LOOKS)

    def _objects(self, key: str, uid: str) -> tuple[JsonObject, JsonObject] | None:
        """Return a TrainJob and its JobSet of this UID as they are now; else drop everything about the key."""
        trainjob, jobset = self._trainjobs.get(key), self._jobsets.get(key)
        if trainjob is not None and jobset is not None and jobset["metadata"]["uid"] == uid:
            owners = jobset["metadata"].get("ownerReferences") or ()
            if any(each["uid"] == trainjob["metadata"]["uid"] for each in owners):
                return trainjob, jobset
        self.forget(key)
        return None

    async def _read_pods(self, key: str) -> bool:
        """Read the pods of a TrainJob if that is due; tells whether there is something to tell of it."""
        job = self._jobs.get(key)
        if job is None:
            return False
        has_fallen = self._takes_read(key, job)
        if not (has_fallen or self._takes_look(job.pods)) or (objects := self._objects(key, job.uid)) is None:
            return False
        _, jobset = objects
        attempt, has_ended = (jobset.get("status") or {}).get("restarts") or 0, job.ended_at is not None
        pods: list[PodFailures] | Unread
        version = 0
        try:
            pods, version = await read_failed_pods(self._client, self._clock, jobset)
        except Unread as error:
            pods = error
        if self._jobs.get(key) is not job or (objects := self._objects(key, job.uid)) is None:
            return False
        if isinstance(pods, Unread) and has_fallen and self._reads_again(job, pods, has_ended=has_ended):
            return False
        if has_ended:
            job.was_read_at_end, job.due = True, None
        job.attempt, job.unread_since = attempt, None
        if isinstance(pods, Unread):
            return has_ended  # otherwise there is nothing new to tell
        trainjob, jobset = objects
        shown = [each.shown for each in pods]
        failures, over = [failure for pod in pods for failure in pod.failures], set(overcome(pods, attempt))
        if not job.was_read:
            # What has been overcome in the time of another process, that one has told of.
            job.first_failures.skip(each for each in over if each.at < time_text(self._leads_since))
        job.was_read = True
        job.failing_as_of = version if any(each not in over for each in failures) else 0
        view = JobView(trainjob, now=self._clock.now(), pods=shown)
        for each in job.first_failures.add(failures, replaced(pods), view):
            log.info("a container failed", failure=each.text)
            self._recorder.event(trainjob, type="Warning", reason=CONTAINER_FAILED, action=_ACTION, note=each.text)
        if job.pods is not None:
            await self._explain(job, trainjob, jobset, shown)
        left = (job.ended_at or 0.0) + HELD - self._clock.monotonic()
        if has_ended and left > 0 and job.first_failures.lacks_peer and any(map(is_running, shown)):
            job.was_read_at_end, job.due = False, self._clock.monotonic() + min(PEER_READ, left)
        return True

    def _reads_again(self, job: _Job, error: Unread, *, has_ended: bool) -> bool:
        """Have pods that could not be read after a failure read again, each time after twice as long."""
        if error.is_forbidden:
            return False
        now = self._clock.monotonic()
        job.unread_since = now if job.unread_since is None else job.unread_since
        tried = now - job.unread_since
        if tried < READING:
            job.due = now + min(max(tried, 1.0), READING - tried)
            return True
        if has_ended:
            job.first_failures.unread = (
                f"which container failed first is not known: the pods could not be read for {READING / 60:.0f} minutes "
                f"({error}); look at those that are left and at their logs"
            )
        return False

    async def _read_events(self, key: str) -> bool:
        """Read why the JobSet of a TrainJob lacks Jobs if that is due; tells whether it is the same one still."""
        job = self._jobs.get(key)
        if job is None or not self._takes_look(job.jobs) or (objects := self._objects(key, job.uid)) is None:
            return False
        with suppress(Unread):
            job.refusal = await read_refused_jobs(self._client, self._clock, objects[1])
        return self._jobs.get(key) is job

    async def _explain(self, job: _Job, trainjob: JsonObject, jobset: JsonObject, pods: list[JsonObject]) -> None:
        """Find out why a TrainJob waits."""
        events: list[Event] | None = None
        with suppress(Unread):
            events = None if pods else await read_refused_pods(self._client, self._clock, jobset)
        job.waiting = waiting_condition(
            trainjob,
            jobset,
            pods,
            events,
            stored=job.waiting,
            failure_is_told=job.first_failures.is_open,
            now=self._clock.now(),
        )

    # When something is due

    def _before(self, key: str, uid: str, counts: dict[str, Counts], written: dict[str, Counts]) -> dict[str, Counts]:
        """Return the counts of a JobSet before these ones, and remember these until a status tells them."""
        known = self._counts.pop(key, None)
        if counts != written:
            self._counts[key] = (uid, counts)
        return known[1] if known is not None and known[0] == uid else written

    def next_due(self, key: str) -> float | None:
        """Return when something about a TrainJob is to be read, by the clock; None: nothing is."""
        job = self._jobs.get(key)
        return None if job is None else job.earliest

    def _ask(self, key: str) -> None:
        """Have a worker read what is due, when it is."""
        due = self.next_due(key)
        if due is not None:
            self._queue.add_after(key, max(due - self._clock.monotonic(), 0.0))

    def _schedule_read(self, job: _Job, *, fallen: bool, anew: bool) -> None:
        now = self._clock.monotonic()
        if fallen and (anew or not job.first_failures.is_open):
            job.due, job.is_read_twice = now, True
        elif fallen:
            # It follows from a failure that is known.
            job.due = now + SECOND_READ if job.due is None else min(job.due, now + SECOND_READ)

    def _schedule_look(self, job: _Job, trainjob: JsonObject, *, waits: bool, is_idle: bool) -> None:
        if not waits:
            job.pods = job.waiting = None
            return
        if job.pods is None:
            job.waiting = find_condition(stored_status(trainjob)["conditions"], WAITING)
        if job.pods is None or (job.pods.is_idle and not is_idle):
            first = PATIENCE.total_seconds() if is_idle else FIRST_LOOK
            interval = FIRST_LOOK if job.pods is None else job.pods.interval
            job.pods = _Look(self._clock.monotonic() + first, interval, is_idle=is_idle)

    def _takes_read(self, key: str, job: _Job) -> bool:
        """Tell whether the pods are to be read now because something failed, and note when they are to be next."""
        now = self._clock.monotonic()
        if job.due is None or now < job.due:
            return False
        delay = 0.0 if job.is_unread_at_end else self._limiter.try_accept(key)
        if delay:
            job.due = now + delay
            return False
        job.due, job.is_read_twice = (now + SECOND_READ if job.is_read_twice else None), False
        return True

    def _takes_look(self, look: _Look | None) -> bool:
        """Tell whether something is to be looked at now, and note when it is to be next; all TrainJobs take turns."""
        now = self._clock.monotonic()
        if look is None or now < look.due:
            return False
        if not look.has_turn:
            look.due, look.has_turn = max(now, self._next_turn), True
            self._next_turn = look.due + _BETWEEN_LOOKS
            if look.due > now:
                return False
        look.interval = min(2 * look.interval, LONGEST_INTERVAL)
        look.due, look.has_turn = now + look.interval, False
        return True
