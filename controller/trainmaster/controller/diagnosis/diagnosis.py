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
  takes the cause of its end from its conditions finds it there. If that takes longer it is added later.
- What is found of a job that is deleted meanwhile, or made again under its name, is dropped: the UIDs of TrainJob and
  JobSet count, as the caches show them once the answer is there. So nothing is kept of what is gone.
- What the status says stays, and is not told again, when another process takes over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from trainmaster.controller.condition_types import CONTAINER_FAILED, WAITING
from trainmaster.controller.conditions import find_condition, is_true
from trainmaster.controller.diagnosis.counts import Counts, counts_of, fails, is_ready, lacks_pods, stuck
from trainmaster.controller.diagnosis.first_failures import FirstFailures, read_condition
from trainmaster.controller.diagnosis.pods import Reader, overcome, read_failed_pods, replaced
from trainmaster.controller.diagnosis.refusals import read_refused_jobs, read_refused_pods
from trainmaster.controller.diagnosis.waiting import waiting_condition
from trainmaster.controller.explain.explanation import PATIENCE
from trainmaster.controller.kube.cache.store import StoreReader
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.kube.events.recorder import Recorder
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

SETTLING: Final = 2.0
"""Seconds until the pods are read once more: the nodes of other ranks may tell later what happened earlier."""

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

    held_for: float | None = None
    """For how many seconds its end is not to be told yet."""


NOTHING: Final = Findings()


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

    held_until: float | None = None
    """Until when its end is not told, so that the reason is told with it; set as soon as it has failed."""

    was_read_at_end: bool = False
    was_explained: bool = False
    """Whether this process has tried to find out why it waits."""

    @property
    def is_unread_at_end(self) -> bool:
        """Whether it has failed, and its pods are still to be read for the reason."""
        return self.held_until is not None and not self.was_read_at_end


@dataclass(slots=True)
class _Look:
    """What is known of one JobSet that lacks Jobs."""

    uid: str
    look_due: float
    interval: float = FIRST_LOOK_FOR_JOBS
    has_turn: bool = False
    refusal: str | None = None
    """Why, if that is known."""


class Diagnosis:
    """Knows what was found about TrainJobs, and reads what is due of them.

    Args:
        client: Whom it asks.
        queue: Where the keys of TrainJobs wait for their time.
        trainjobs: The cache of TrainJobs.
        jobsets: The cache of JobSets, which have the keys of their TrainJobs.
        recorder: Where events go.
        clock: The time.
    """

    def __init__(
        self,
        client: Reader,
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

        self._looks: dict[str, _Look] = {}
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
        jobs, written_jobs = now.get("replicatedJobsStatus") or (), status.get("jobsStatus") or ()
        if (
            jobs == written_jobs
            and told is None
            and not report.conditions
            and key not in self._jobs
            and key not in self._counts
            and not (stuck(jobs) or lacks_pods(jobs))
        ):
            return NOTHING  # as nearly always, so it has to be quick
        completed, failed = is_true(report.conditions, COMPLETE), is_true(report.conditions, FAILED)
        if completed and not failed and told is None and key not in self._jobs:
            self._counts.pop(key, None)
            return NOTHING  # and so does an end without any failure
        counts, restarts = counts_of(jobs), now.get("restarts") or 0
        before = self._before(key, uid, counts, counts_of(written_jobs))
        job = self._jobs.get(key)
        if job is not None and job.uid != uid:
            job = self._jobs[key] = _Job(uid, restarts)
        if job is None and told is not None and told.get("status") == "True":
            job = self._jobs[key] = _Job(uid, restarts, read_condition(told))
        rests = completed or any((each.get("spec") or {}).get("suspend") for each in (jobset, trainjob))
        fallen = failed or (not rests and fails(before, counts))
        starts = not failed and not rests
        waits, idles = starts and stuck(jobs), starts and lacks_pods(jobs)
        if job is None:
            if not fallen and not waits and not idles:
                return NOTHING
            job = self._jobs[key] = _Job(uid, restarts)
        if failed and job.held_until is None:
            job.held_until, job.was_read_at_end = self._clock.monotonic() + HELD, False
        elif failed:
            fallen = False  # that is known, and its pods are read, or were
        unseen = restarts - job.attempt > job.first_failures.is_open  # a failure for which it was restarted
        self._schedule(job, fallen=fallen or unseen, anew=failed or restarts > job.attempt, stuck=waits, idle=idles)
        if failed:
            job.first_failures.reopen()
        elif is_ready(jobset, counts) or completed:
            job.attempt = restarts
            job.first_failures.close()
        if failed or not rests:
            self._ask(key)
        is_due = not rests and (job.due is not None or job.look_due is not None)
        if not failed and not is_due and not job.was_read and not job.first_failures.told:
            del self._jobs[key]  # it was only slow to get ready
        held_for = (job.held_until or 0.0) - self._clock.monotonic()
        return Findings(job.first_failures, held_for if job.is_unread_at_end and held_for > 0 else None)

    def observe_ended(self, key: str) -> Findings:
        """Return what was found about a TrainJob only after its end was told."""
        self._looks.pop(key, None)
        job = self._jobs.get(key)
        if job is None or job.is_unread_at_end:
            return NOTHING
        return Findings(job.first_failures)

    def refusal(self, key: str, jobset: JsonObject) -> str | None:
        """Take a JobSet that lacks Jobs; return why, if that is known."""
        uid, look = jobset["metadata"]["uid"], self._looks.get(key)
        if look is None or look.uid != uid:
            look = self._looks[key] = _Look(uid, look_due=self._clock.monotonic() + FIRST_LOOK_FOR_JOBS)
            self._ask(key)
        return look.refusal

    def forget_refusal(self, key: str) -> None:
        """Note that the JobSet of a TrainJob lacks no Jobs, or that this is of no interest."""
        self._looks.pop(key, None)

    def waiting(self, key: str, trainjob: JsonObject, jobset: JsonObject | None) -> JsonObject | None:
        """Return the condition that tells why a TrainJob waits; that which is stored, until it has been looked at."""
        job = self._jobs.get(key)
        if job is None or job.look_due is None or jobset is None or job.uid != jobset["metadata"]["uid"]:
            return None
        stored = find_condition((trainjob.get("status") or {}).get("conditions") or [], WAITING)
        return job.waiting if job.was_explained else stored

    def note_counts(self, key: str, jobset: JsonObject) -> None:
        """Take note of counts of a JobSet which the status of its TrainJob is to tell of later."""
        counts = counts_of((jobset.get("status") or {}).get("replicatedJobsStatus") or ())
        self._counts[key] = (jobset["metadata"]["uid"], counts)

    def note_status(self, key: str, status: JsonObject) -> None:
        """Take note of what the status of a TrainJob tells from now on."""
        known = self._counts.get(key)
        if known is not None and known[1] == counts_of(status.get("jobsStatus") or ()):
            del self._counts[key]

    def forget_ended(self, key: str, conditions: list[JsonObject]) -> None:
        """Drop everything about a TrainJob whose end is told, unless its conditions lack what is found of it."""
        job = self._jobs.get(key)
        found = job.first_failures.condition if job is not None else None
        told = find_condition(conditions, CONTAINER_FAILED)
        is_told = found is None or (told is not None and told.get("message") == found["message"])
        if job is None or (is_told and not job.is_unread_at_end):
            self.forget(key)

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._jobs.pop(key, None)
        self._counts.pop(key, None)
        self._looks.pop(key, None)

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
        """Read the pods of a TrainJob if that is due; tells whether it is the same one still."""
        job = self._jobs.get(key)
        if job is None or not self._is_due(key, job) or (objects := self._objects(key, job.uid)) is None:
            return False
        _, jobset = objects
        attempt, has_ended = (jobset.get("status") or {}).get("restarts") or 0, job.held_until is not None
        pods = await read_failed_pods(self._client, self._clock, jobset)
        if self._jobs.get(key) is not job or (objects := self._objects(key, job.uid)) is None:
            return False
        if has_ended:
            job.was_read_at_end, job.due = True, None
        job.attempt = attempt
        if pods is None:
            return has_ended  # otherwise there is nothing new to tell
        trainjob, jobset = objects
        if not job.was_read:
            # What has been overcome in the time of another process, that one has told of.
            job.first_failures.skip(each for each in overcome(pods, attempt) if _is_before(each.at, self._leads_since))
        job.was_read = True
        failures = [failure for pod in pods for failure in pod.failures]
        for each in job.first_failures.note(failures, replaced(pods)):
            log.info("a container failed", failure=each.text)
            self._recorder.event(trainjob, type="Warning", reason=CONTAINER_FAILED, action=_ACTION, note=each.text)
        if job.look_due is not None:
            await self._explain(job, trainjob, jobset, [each.shown for each in pods])
        return True

    async def _read_events(self, key: str) -> bool:
        """Read why the JobSet of a TrainJob lacks Jobs if that is due; tells whether it is the same one still."""
        look, now = self._looks.get(key), self._clock.monotonic()
        if look is None or now < look.look_due or not self._take_turn(look):
            return False
        if (objects := self._objects(key, look.uid)) is None:
            return False
        _, jobset = objects
        look.interval = min(2 * look.interval, LONGEST_INTERVAL)
        look.look_due, look.has_turn = now + look.interval, False
        look.refusal = await read_refused_jobs(self._client, self._clock, jobset, known=look.refusal)
        return self._looks.get(key) is look

    async def _explain(self, job: _Job, trainjob: JsonObject, jobset: JsonObject, pods: list[JsonObject]) -> None:
        """Find out why a TrainJob waits."""
        events = None if pods else await read_refused_pods(self._client, self._clock, jobset)
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

    # When something is due

    def _before(self, key: str, uid: str, counts: dict[str, Counts], written: dict[str, Counts]) -> dict[str, Counts]:
        """Return the counts of a JobSet before these ones, and remember these until a status tells them."""
        known = self._counts.pop(key, None)
        if counts != written:
            self._counts[key] = (uid, counts)
        return known[1] if known is not None and known[0] == uid else written

    def next_due(self, key: str) -> float | None:
        """Return when something about a TrainJob is to be read, by the clock; None: nothing is."""
        job, look = self._jobs.get(key), self._looks.get(key)
        dues = [] if job is None else [job.due, job.look_due]
        dues += [] if look is None else [look.look_due]
        return min((each for each in dues if each is not None), default=None)

    def _ask(self, key: str) -> None:
        """Have a worker read what is due, when it is."""
        due = self.next_due(key)
        if due is not None:
            self._queue.add_after(key, max(due - self._clock.monotonic(), 0.0))

    def _take_turn(self, looking: _Job | _Look) -> bool:
        """Tell whether somebody who is due may look now; all of them take their turns."""
        if looking.has_turn:
            return True
        now = self._clock.monotonic()
        looking.look_due, looking.has_turn = max(now, self._next_turn), True
        self._next_turn = looking.look_due + _BETWEEN_LOOKS
        return looking.look_due <= now

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

    def _is_due(self, key: str, job: _Job) -> bool:
        """Tell whether the pods are to be read now, and note when they are to be next."""
        now = self._clock.monotonic()
        if job.due is not None and now >= job.due:
            delay = 0.0 if job.is_unread_at_end else self._limiter.try_accept(key)
            if delay:
                job.due = now + delay
                return False
            job.due, job.settles = (now + SETTLING if job.settles else None), False
            return True
        if job.look_due is None or now < job.look_due or not self._take_turn(job):
            return False
        job.has_turn = False
        job.interval = min(2 * job.interval, LONGEST_INTERVAL)
        job.look_due = now + job.interval
        return True


def _is_before(at: str, moment: datetime) -> bool:
    return at < time_text(moment)
