"""The way from a key to a status, the same for TrainJobs and for jobs of every other kind.

1. observe: what the caches say of the job and of all that belongs to it;
2. decide, purely: the writes, the status that follows, when to look again;
3. build: the writes that the job consists of (see `applier`);
4. status: one patch, if it has changed (see `status_writer`);
5. clean up: deletions, and that of the job itself when its time to live is over.

What is observed and decided, a subclass says: `trainjobs.reconciler`, `jobs.reconciler`.

Guarantees:
- C-12: a settled job costs no request; what comes back of the own writes of a TrainJob, no reconcile either (see
  `expectations`).
- A crash between any two writes changes nothing in the end state: all that is remembered here only saves work.
- C-1, C-4 (V1-B8): no key is reconciled before the caches have seen its own last writes, all of them, also when its
  object has been deleted and made again in between.
- C-9: a conflict drops the work of this reconcile; the next one reads again.
- F-3: owner references and garbage collection suffice for cleaning up, so there is no finalizer.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Generic, TypeVar

from trainmaster.controller.condition_types import NAME_TAKEN
from trainmaster.controller.kube.cache.store import Store, StoreReader
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, ApiError, Conflict, TooManyRequests
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.applier import Applier
from trainmaster.controller.reconciling.expectations import Echoes, Expectations
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
from trainmaster.controller.reconciling.problems import EVENT_ACTION, NameTaken, Problem, ProblemReporter, unreadable
from trainmaster.controller.reconciling.status_writer import StatusWriter
from trainmaster.controller.reconciling.write_backoff import WriteBackoff
from trainmaster.controller.reconciling.writes import Decision, GroupVersionKind, JobEvent, Owner
from trainmaster.runtime import ownership
from trainmaster.runtime.api import ApiTypeError, ObjectUnreadable
from trainmaster.runtime.jsontree import JsonObject, why_unreadable

Job = TypeVar("Job", bound=ownership.Owner)
Observed = TypeVar("Observed")
Decided = TypeVar("Decided", bound=Decision)
T = TypeVar("T")


class Reconciler(ABC, Generic[Job, Observed, Decided]):
    """Reconciles the jobs of one kind.

    Args:
        client: Performs the writes, and reads what the caches lack.
        resource: The kind.
        jobs: The cache of them.
        stores: The caches of all that is written for them, by API version and kind, each with its resource.
        queue: Where their keys wait.
        recorder: Where events go.
        clock: The time.
        only_counters: Tells of two statuses whether they differ in nothing but counters.
        planner: Where what is large is decided; by default in the threads of the event loop.
        is_quiet: Whether of single objects only what fails is told as an event.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        resource: Resource,
        jobs: Store,
        stores: Mapping[GroupVersionKind, tuple[Resource, StoreReader]],
        queue: WorkQueue,
        recorder: Recorder,
        clock: Clock,
        only_counters: Callable[[JsonObject, JsonObject], bool],
        planner: Executor | None = None,
        is_quiet: bool = False,
    ) -> None:
        self._resource = resource
        self._jobs = jobs
        self._recorder = recorder
        self._clock = clock
        self._planner = planner
        self._expectations = Expectations(clock=clock)
        self.echoes = Echoes(queue, self._expectations)
        """What stands between the events of what belongs to jobs and the queue."""

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
            store=jobs,
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

    async def reconcile(self, key: str) -> Outcome:
        """Bring one job to its desired state."""
        if self.echoes.begin(key):
            self._begin_anew(key)
        try:
            return await self._reconcile(key)
        finally:
            self.echoes.end(key)

    async def _reconcile(self, key: str) -> Outcome:
        raw = self._jobs.get(key)
        if not self._expectations.satisfied(key, raw["metadata"]["uid"] if raw else None):
            return ExpectationsPending(EXPECTATIONS_RECHECK)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            self._forget(key)  # its children go with it, by garbage collection
            return DONE
        if (seconds := self._seconds_to_look(key)) > 0:
            return ExpectationsPending(seconds)
        if (reason := why_unreadable(raw)) is not None:
            # Whatever its status says stays as it is.
            problem = unreadable(self._resource.kind, f"{reason}; correct it")
            self._problem_reporter.report(key, raw, problem)
            return TerminalError(problem.message)
        if not self._is_ours(raw):
            return DONE
        try:
            job = self._parse(raw)
        except ApiTypeError as error:
            return await self._report_unreadable(key, raw, unreadable(self._resource.kind, str(error)))
        try:
            return await self._move_on(key, raw, job)
        except ObjectUnreadable as error:
            return await self._report_unreadable(key, raw, Problem("ObjectUnreadable", str(error), retry=False))

    async def _move_on(self, key: str, raw: JsonObject, job: Job) -> Outcome:
        observed = await self._observe(key, raw, job)
        decided = await self._decide(key, observed)
        if decided.held_for is not None:
            return RequeueAfter(decided.held_for)
        owner = Owner(job.metadata, raw)
        problem, failure, write_due = await self._build(key, owner, decided)
        problem, wording_due = self._problem_reporter.keep_wording(key, raw, problem)
        status = self._status(key, observed, decided, problem)
        status_due = await self._status_writer.write(key, raw, status)
        self._problem_reporter.report(key, raw, problem)
        self._record(raw, decided.events)
        if status_due is None:
            self._on_status(key, observed, decided, status)
        if await self._clean_up(key, owner, observed, decided, status_due):
            return DONE
        if problem is None and write_due is None:
            self._settle(key, observed, decided)
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

    async def _clean_up(
        self, key: str, owner: Owner, observed: Observed, decided: Decided, status_due: float | None
    ) -> bool:
        """Delete what is not wanted any more; tells whether that is the job itself."""
        if status_due is None or not decided.status_first:
            await self._applier.delete(key, owner, decided.deletes)
            self._on_deleted(observed, decided)
        if status_due is not None or not decided.is_expired:
            return False
        if await self._applier.delete_expired(key, owner):
            self._on_expired(observed)
        return True

    async def _report_unreadable(self, key: str, raw: JsonObject, problem: Problem) -> Outcome:
        """Tell the owner of a job that the API server accepted it, or a part of it, but nobody can work with that."""
        problem = self._problem_reporter.keep_wording(key, raw, problem)[0] or problem
        status_due = None
        status = self._status_of_unreadable(raw, problem)
        if status is not None:
            status_due = await self._status_writer.write(key, raw, status)
        self._problem_reporter.report(key, raw, problem)
        if status is None:
            return DONE  # it has ended, and needs nothing more of anybody
        return TerminalError(problem.message) if status_due is None else RequeueAfter(status_due)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Decide what is large where it holds up nobody; what log lines and traces say of the job goes along."""
        return await asyncio.get_running_loop().run_in_executor(self._planner, copy_context().run, function)

    def _record(self, raw: JsonObject, events: Iterable[JobEvent]) -> None:
        for each in events:
            self._recorder.event(raw, type=each.type, reason=each.reason, action=EVENT_ACTION, note=each.note)

    def _forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._problem_reporter.forget(key)
        self._applier.forget(key)
        self._status_writer.forget(key)

    # What a kind says

    def _begin_anew(self, key: str) -> None:
        """Take nothing for known: something has changed at which a reconcile does not look."""

    def _seconds_to_look(self, key: str) -> float:  # noqa: ARG002 - for those that are looked at less often
        return 0.0

    @abstractmethod
    def _is_ours(self, raw: JsonObject) -> bool:
        """Tell whether a job is not another controller's."""

    @abstractmethod
    def _parse(self, raw: JsonObject) -> Job:
        """Read a job; raises `ApiTypeError` if nobody can."""

    @abstractmethod
    async def _observe(self, key: str, raw: JsonObject, job: Job) -> Observed:
        """Look up everything that the decision rests on; raises `ObjectUnreadable` if a part cannot be read."""

    @abstractmethod
    async def _decide(self, key: str, observed: Observed) -> Decided:
        """Decide, purely, what to write and when to look again."""

    @abstractmethod
    def _status(self, key: str, observed: Observed, decided: Decided, problem: Problem | None) -> JsonObject:
        """Return the status that follows, given what stands in the way."""

    @abstractmethod
    def _status_of_unreadable(self, raw: JsonObject, problem: Problem) -> JsonObject | None:
        """Return the status that tells why a job cannot be read; None if it has ended."""

    def _on_status(self, key: str, observed: Observed, decided: Decided, status: JsonObject) -> None:
        """Take note that the status is what it should be."""

    def _on_deleted(self, observed: Observed, decided: Decided) -> None:
        """Take note that what was to be deleted is."""

    def _on_expired(self, observed: Observed) -> None:
        """Take note that a job was deleted at the end of its time to live."""

    def _settle(self, key: str, observed: Observed, decided: Decided) -> None:
        """Take note that nothing is in the way of a job: `Echoes.settle`, if what was written in this reconcile needs
        no other one.
        """
