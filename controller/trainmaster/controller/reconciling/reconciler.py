"""The way from a key to a status, the same for TrainJobs and for jobs of every other kind.

1. observe: what the caches say of the job and of all that belongs to it;
2. decide: the writes, the status that follows, when to look again; nothing is written yet;
3. build: the writes that the job consists of (see `applier`);
4. status: one patch, if it has changed (see `status_writer`);
5. clean up: deletions, and that of the job itself when its time to live is over.

What is observed and decided of a kind, its `Decider` says: `trainjobs.decider`, `jobs.decider`.

Guarantees:
- C-12: a settled job costs no request; what comes back of the own writes of a TrainJob, no reconcile either (see
  `expectations`).
- A crash between any two writes changes nothing in the end state: all that is remembered here only saves work.
- C-1, C-4 (V1-B8): no key is reconciled before the caches have seen its own last writes, all of them, also when its
  object has been deleted and made again in between.
- C-9: a conflict drops the work of this reconcile; the next one reads again.
- F-3: owner references and garbage collection suffice for cleaning up, so there is no finalizer.
- An unforeseen error, in a kind or a plugin of others for instance, is told by the job that it befell, and hurts no
  other.
- The events of a status that was written are recorded at least once, also if the answer to the write was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Generic, NamedTuple, Protocol, TypeVar, final

from trainmaster.controller.conditions import NAME_TAKEN, stored_status
from trainmaster.controller.kube.cache.store import Store, StoreReader
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, ApiError, Conflict, KubeError, TooManyRequests
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.applier import Applier
from trainmaster.controller.reconciling.expectations import EventFilter, Expectations
from trainmaster.controller.reconciling.outcomes import (
    DONE,
    EXPECTATIONS_RECHECK,
    UNTIL_FREED,
    WAITING_INTERVAL,
    ExpectationsPending,
    Outcome,
    RequeueAfter,
    TerminalError,
    next_outcome,
    to_requeue,
)
from trainmaster.controller.reconciling.problems import (
    EVENT_ACTION,
    NameTaken,
    Problem,
    ProblemReporter,
    unforeseen,
    unreadable,
)
from trainmaster.controller.reconciling.status_writer import StatusWriter
from trainmaster.controller.reconciling.write_backoff import WriteBackoff
from trainmaster.controller.reconciling.writes import Decision, GroupVersionKind, JobEvent, Owner
from trainmaster.runtime import ownership
from trainmaster.runtime.api import ApiTypeError, ObjectUnreadable
from trainmaster.runtime.jsontree import JsonObject, why_unreadable

Job = TypeVar("Job", bound=ownership.Owner)
Observed = TypeVar("Observed")
Decided = TypeVar("Decided", bound=Decision)


class Decider(Protocol[Job, Observed, Decided]):
    """What is observed and decided of the jobs of one kind; it knows nothing of the reconciler."""

    def is_ours(self, raw: JsonObject) -> bool:
        """Return whether a job is not another controller's."""

    def parse(self, raw: JsonObject) -> Job:
        """Read a job; raises `ApiTypeError` if nobody can."""

    async def observe(self, key: str, raw: JsonObject, job: Job) -> Observed:
        """Look up everything that the decision rests on; raises `ObjectUnreadable` if a part cannot be read."""

    async def decide(self, key: str, observed: Observed) -> Decided:
        """Decide what to write and when to look again."""

    def status(self, key: str, observed: Observed, decided: Decided, problem: Problem | None) -> JsonObject:
        """Return the status that follows, given what stands in the way."""

    def unreadable_status(self, raw: JsonObject, problem: Problem) -> JsonObject | None:
        """Return the status that tells why a job cannot be read; None if it has ended."""

    def on_written(self, key: str, decided: Decided, status: JsonObject | None) -> None:
        """Take note that all is written that comes before deletions; `status` is None if that still has to wait."""

    def on_expired(self, raw: JsonObject) -> JobEvent:
        """Take note that a job was deleted at the end of its time to live; return the event of that."""

    def keep_plan(self, key: str, observed: Observed, decided: Decided) -> bool:  # noqa: ARG002 - none is kept
        """Keep a plan that nothing is in the way of; return whether events of what was written need no reconcile."""
        return False

    def forget_plan(self, key: str) -> None:
        """Decide anew: something has changed at which `observe` does not look."""

    def forget(self, key: str) -> None:
        """Drop everything about a key."""


class _Unanswered(NamedTuple, Generic[Decided]):
    """A status that may be written, since no answer says that it is not."""

    raw: JsonObject
    """The job before."""

    status: JsonObject
    decided: Decided


@final
class Reconciler(Generic[Job, Observed, Decided]):
    """Reconciles the jobs of one kind.

    Args:
        stores: The caches of all that is written for them, by API version and kind, each with its resource.
        only_counters: Tells of two statuses whether they differ in nothing but counters.
        is_quiet: Whether of single objects only what fails is told as an event.
    """

    def __init__(
        self,
        decider: Decider[Job, Observed, Decided],
        *,
        client: KubeClient,
        resource: Resource,
        jobs: Store,
        stores: Mapping[GroupVersionKind, tuple[Resource, StoreReader]],
        queue: WorkQueue,
        recorder: Recorder,
        clock: Clock,
        only_counters: Callable[[JsonObject, JsonObject], bool],
        is_quiet: bool = False,
    ) -> None:
        self._decider = decider
        self._resource = resource
        self._jobs = jobs
        self._recorder = recorder
        self._clock = clock
        self._expectations = Expectations(clock=clock)
        self.event_filter = EventFilter(queue, self._expectations, on_anew=decider.forget_plan)
        """What stands between the events of what belongs to jobs and the queue."""

        self._rests_until: dict[str, float] = {}
        """Until when a job of many pods is not looked at, by key."""

        self._unanswered: dict[str, _Unanswered[Decided]] = {}
        self._problem_reporter = ProblemReporter(recorder, clock, kind=resource.kind)
        write_backoff = WriteBackoff(clock)
        self._applier = Applier(
            client=client,
            resource=resource,
            jobs=jobs,
            stores=stores,
            expectations=self._expectations,
            write_backoff=write_backoff,
            problem_reporter=self._problem_reporter,
            recorder=recorder,
            is_quiet=is_quiet,
        )
        self._status_writer = StatusWriter(
            client=client,
            resource=resource,
            jobs=jobs,
            only_counters=only_counters,
            expectations=self._expectations,
            write_backoff=write_backoff,
            problem_reporter=self._problem_reporter,
            clock=clock,
        )

    def on_start(self) -> None:
        """Note that this process leads: what the caches have shown until now was another one's to reconcile."""
        self._applier.on_start()

    def unobserved(self) -> list[str]:
        """Name the keys that should have been reconciled again after a write of theirs."""
        return self._expectations.unobserved()

    def schedule_counters(self, key: str) -> float:
        """Have counters of a key written when it is their time; return the seconds until then."""
        return self._status_writer.schedule_counters(key)

    async def reconcile(self, key: str) -> Outcome:
        """Bring one job to its desired state."""
        raw = self._jobs.get(key)
        if not self.event_filter.begin(key, raw["metadata"]["uid"] if raw else None):
            return ExpectationsPending(EXPECTATIONS_RECHECK)
        try:
            return await self._reconcile(key, raw)
        finally:
            self.event_filter.end(key)

    async def _reconcile(self, key: str, raw: JsonObject | None) -> Outcome:
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            self._forget(key)  # its children go with it, by garbage collection
            return DONE
        if (seconds := self._rests_until.get(key, 0.0) - self._clock.monotonic()) > 0:
            return ExpectationsPending(seconds)
        if (reason := why_unreadable(raw)) is not None:
            # Whatever its status says stays as it is.
            problem = unreadable(self._resource.kind, f"{reason}; correct it")
            self._problem_reporter.report(key, raw, problem)
            return TerminalError(problem.message)
        if not self._decider.is_ours(raw):
            return DONE
        self._tell_if_written(key, raw)
        try:
            try:
                job = self._decider.parse(raw)
            except ApiTypeError as error:
                return await self._report_unreadable(key, raw, unreadable(self._resource.kind, str(error)))
            return await self._move_on(key, raw, job)
        except ObjectUnreadable as error:
            return await self._report_unreadable(key, raw, Problem("ObjectUnreadable", str(error), retry=False))
        except KubeError:
            raise
        except Exception as error:
            with suppress(KubeError):
                await self._report_unreadable(key, raw, unforeseen(self._resource.kind, error))
            raise

    async def _move_on(self, key: str, raw: JsonObject, job: Job) -> Outcome:
        decider, owner = self._decider, Owner(job.metadata, raw)
        observed = await decider.observe(key, raw, job)
        decided = await decider.decide(key, observed)
        if decided.held_for is not None:
            return RequeueAfter(decided.held_for)
        if decided.rests_for:
            self._rests_until[key] = self._clock.monotonic() + decided.rests_for
        if decided.annotations:
            await self._applier.annotate(key, owner, decided.annotations)
            self._tell(key, raw, decided, None)
            return DONE  # the cache is going to show them
        problem, failure, write_due = await self._build(key, owner, decided)
        if decided.is_partial and problem is None:
            self._rests_until.pop(key, None)
        problem, wording_due = self._problem_reporter.keep_wording(key, raw, problem)
        status = decider.status(key, observed, decided, problem)
        status_due = await self._write_status(key, raw, decided, status)
        self._problem_reporter.report(key, raw, problem)
        self._tell(key, raw, decided, status if status_due is None else None)
        if await self._clean_up(key, owner, decided, status_due):
            return DONE
        if problem is None and write_due is None and decider.keep_plan(key, observed, decided):
            self.event_filter.expect_echoes(key)
        waiting = WAITING_INTERVAL if decided.waiting else None
        taken = UNTIL_FREED if problem is not None and problem.reason == NAME_TAKEN else None
        # What a server refuses is asked again by the backoff alone.
        reword = None if failure else wording_due
        dues = write_due, status_due, to_requeue(decided.due), to_requeue(decided.expires_in), waiting, taken, reword
        return next_outcome(dues, failure=failure, problem=problem)

    async def _build(
        self, key: str, owner: Owner, decided: Decided
    ) -> tuple[Problem | None, ApiError | None, float | None]:
        """Perform the writes that a job consists of.

        Returns:
            What stands in the way of the job, the refusal if it was one, the seconds until a write is due again.
        """
        try:
            return decided.problem, None, await self._applier.build(key, owner, decided)
        except (Conflict, AlreadyExists, TooManyRequests):
            raise
        except NameTaken as error:
            return error.problem, None, None
        except ApiError as error:
            return Problem("ApplyFailed", str(error)), error, None

    async def _write_status(self, key: str, raw: JsonObject, decided: Decided, status: JsonObject) -> float | None:
        """Write the status; returns the seconds until it is due if it has to wait."""
        try:
            due = await self._status_writer.write(key, raw, status)
        except Conflict:
            raise  # this one was not written, but perhaps the one before
        except KubeError:
            self._unanswered[key] = _Unanswered(raw, status, decided)
            raise
        self._unanswered.pop(key, None)
        return due

    def _tell_if_written(self, key: str, raw: JsonObject) -> None:
        """Tell of the status whose write failed, if the next state of the job shows that it was performed."""
        last = self._unanswered.get(key)
        if last is None or raw["metadata"]["resourceVersion"] == last.raw["metadata"]["resourceVersion"]:
            return
        del self._unanswered[key]
        # Others may have written into the status since, but no condition of ours.
        is_there = stored_status(raw)["conditions"] == (last.status.get("conditions") or [])
        if raw["metadata"]["uid"] == last.raw["metadata"]["uid"] and is_there:
            self._tell(key, raw, last.decided, last.status)

    def _tell(self, key: str, raw: JsonObject, decided: Decided, status: JsonObject | None) -> None:
        """Tell what has happened, and what the status says once that is written."""
        self._record(raw, decided.events)
        if status is not None:
            self._record(raw, decided.status_events)
        self._decider.on_written(key, decided, status)

    async def _clean_up(self, key: str, owner: Owner, decided: Decided, status_due: float | None) -> bool:
        """Delete what is not wanted any more; tells whether that is the job itself."""
        if status_due is None or not decided.status_first:
            await self._applier.delete(key, owner, decided.deletes, foreground=decided.waits_for_dependents)
        if status_due is not None or not decided.is_expired:
            return False
        if await self._applier.delete_expired(key, owner):
            self._record(owner.raw, [self._decider.on_expired(owner.raw)])
        return True

    async def _report_unreadable(self, key: str, raw: JsonObject, problem: Problem) -> Outcome:
        """Tell the owner of a job that the API server accepted it, or a part of it, but nobody can work with that."""
        problem = self._problem_reporter.keep_wording(key, raw, problem)[0] or problem
        status_due = None
        status = self._decider.unreadable_status(raw, problem)
        if status is not None:
            status_due = await self._status_writer.write(key, raw, status)
        self._problem_reporter.report(key, raw, problem)
        if status is None:
            return DONE  # it has ended, and needs nothing more of anybody
        return TerminalError(problem.message) if status_due is None else RequeueAfter(status_due)

    def _record(self, raw: JsonObject, events: Iterable[JobEvent]) -> None:
        for each in events:
            self._recorder.event(raw, type=each.type, reason=each.reason, action=EVENT_ACTION, note=each.note)

    def _forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._rests_until.pop(key, None)
        self._unanswered.pop(key, None)
        self._problem_reporter.forget(key)
        self._applier.forget(key)
        self._status_writer.forget(key)
        self._decider.forget(key)
