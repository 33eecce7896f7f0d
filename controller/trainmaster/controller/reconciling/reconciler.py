"""The way from a key to a status, the same for TrainJobs and for jobs of every other kind.

1. observe: what the caches say of the job and of all that belongs to it;
2. decide: the writes, the status that follows, when to look again; nothing is written yet;
3. build: the writes that the job consists of (see `applier`);
4. status: one patch, if it has changed, and what the owner is told by events (see `status_writer`);
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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Generic, Protocol, TypeVar, final

from trainmaster.controller.conditions import NAME_TAKEN
from trainmaster.controller.kube.cache.store import Store, StoreReader
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.applier import Applier, Built
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
from trainmaster.controller.reconciling.problems import Problem, unforeseen, unreadable
from trainmaster.controller.reconciling.status_writer import StatusWriter, Written
from trainmaster.controller.reconciling.write_backoff import WriteBackoff
from trainmaster.controller.reconciling.writes import Decision, GroupVersionKind, JobEvent, Owner
from trainmaster.runtime import ownership
from trainmaster.runtime.api.decoding import ApiTypeError, ObjectUnreadable
from trainmaster.runtime.jsontree import JsonObject, why_unreadable


class ObservedJob(Protocol):
    """A job, and what else was observed for a decision about it."""

    @property
    def job(self) -> ownership.Owner:
        """The job."""


Observed = TypeVar("Observed", bound=ObservedJob)
Decided = TypeVar("Decided", bound=Decision)


class Decider(Protocol[Observed, Decided]):
    """What is observed and decided of the jobs of one kind; it knows nothing of the reconciler."""

    async def observe(self, key: str, raw: JsonObject) -> Observed | None:
        """Look up everything that the decision rests on; None: the job is another controller's.

        Raises `ApiTypeError` if nobody can read the job, `ObjectUnreadable` if it is another object.
        """

    async def decide(self, key: str, observed: Observed) -> Decided:
        """Decide what to write, which status follows, and when to look again."""

    def on_written(self, key: str, decided: Decided, status: JsonObject | None, *, is_built: bool = False) -> None:
        """Take note that all is written that comes before deletions; `status` is None if that still has to wait.

        The job `is_built` if it consists of everything that was decided.
        """

    def on_expired(self, raw: JsonObject) -> JobEvent:
        """Take note that a job was deleted at the end of its time to live; return the event of that."""

    def unreadable_status(self, raw: JsonObject, problem: Problem) -> JsonObject | None:
        """Return the status that tells why a job cannot be read; None if it has ended."""

    def forget_plan(self, key: str) -> None:
        """Decide anew: something has changed at which `observe` does not look."""

    def forget(self, key: str) -> None:
        """Drop everything about a key."""


@final
class Reconciler(Generic[Observed, Decided]):
    """Reconciles the jobs of one kind.

    Args:
        stores: The caches of all that is written for them, by API version and kind, each with its resource.
        only_counters: Tells of two statuses whether they differ in nothing but counters.
        is_quiet: Whether of single objects only what fails is told as an event.
    """

    def __init__(
        self,
        decider: Decider[Observed, Decided],
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
        self._clock = clock
        self._expectations = Expectations(clock=clock)
        self.event_filter = EventFilter(queue, self._expectations, on_anew=decider.forget_plan)
        """What stands between the events of what belongs to jobs and the queue."""

        self._rests_until: dict[str, float] = {}
        """Until when a job of many pods is not looked at, by key."""

        write_backoff = WriteBackoff(clock)
        self._applier = Applier(
            client=client,
            resource=resource,
            jobs=jobs,
            stores=stores,
            expectations=self._expectations,
            write_backoff=write_backoff,
            recorder=recorder,
            is_quiet=is_quiet,
        )
        self._status_writer: StatusWriter[Decided] = StatusWriter(
            client=client,
            resource=resource,
            jobs=jobs,
            only_counters=only_counters,
            expectations=self._expectations,
            write_backoff=write_backoff,
            recorder=recorder,
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
            self._status_writer.report(key, raw, problem)
            return TerminalError(problem.message)
        try:
            return await self._sync(key, raw)
        except ObjectUnreadable as error:
            return await self._report_unreadable(key, raw, Problem("ObjectUnreadable", str(error), retry=False))
        except KubeError:
            raise
        except Exception as error:
            with suppress(KubeError):
                await self._report_unreadable(key, raw, unforeseen(self._resource.kind, error))
            raise

    async def _sync(self, key: str, raw: JsonObject) -> Outcome:
        decider, applier, status_writer = self._decider, self._applier, self._status_writer
        if (unanswered := status_writer.settle_unanswered(key, raw)) is not None:
            decider.on_written(key, *unanswered)
        try:
            observed = await decider.observe(key, raw)
        except ObjectUnreadable:
            raise
        except ApiTypeError as error:
            return await self._report_unreadable(key, raw, unreadable(self._resource.kind, str(error)))
        if observed is None:
            return DONE  # another controller's
        decided, owner = await decider.decide(key, observed), Owner(observed.job.metadata, raw)
        if decided.held_for is not None:
            return RequeueAfter(decided.held_for)
        if decided.rests_for:
            self._rests_until[key] = self._clock.monotonic() + decided.rests_for
        if decided.annotations:
            await applier.annotate(key, owner, decided.annotations)
            status_writer.record(raw, decided.events)
            decider.on_written(key, decided, None)
            return DONE  # the cache is going to show them
        built = await applier.build(key, owner, decided)
        if decided.is_partial and built.problem is None:
            self._rests_until.pop(key, None)
        written = await status_writer.write(key, raw, decided, built.problem)
        is_built = built.problem is None and built.due is None
        decider.on_written(key, decided, written.status, is_built=is_built)
        await applier.clean_up(key, owner, decided, is_told=written.status is not None)
        if decided.is_expired and written.status is not None:
            if await applier.delete_expired(key, owner):
                status_writer.record(raw, [decider.on_expired(raw)])
            return DONE
        if is_built and decided.settles:
            self.event_filter.expect_echoes(key)
        return _outcome(decided, built, written)

    async def _report_unreadable(self, key: str, raw: JsonObject, problem: Problem) -> Outcome:
        """Tell the owner of a job that the API server accepted it, or a part of it, but nobody can work with that."""
        written = await self._status_writer.write_unreadable(key, raw, problem, self._decider.unreadable_status)
        if written.due is not None:
            return RequeueAfter(written.due)
        return DONE if written.status is None else TerminalError(problem.message)

    def _forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._rests_until.pop(key, None)
        self._applier.forget(key)
        self._status_writer.forget(key)
        self._decider.forget(key)


def _outcome(decided: Decision, built: Built, written: Written) -> Outcome:
    """Return what a reconcile ends in that has written what it could."""
    problem, refusal = written.problem, built.refusal
    waiting = WAITING_INTERVAL if decided.waiting else None
    taken = UNTIL_FREED if problem is not None and problem.reason == NAME_TAKEN else None
    # What a server refuses is asked again by the backoff alone.
    reword = None if refusal else written.reword
    due, expires_in = to_requeue(decided.due), to_requeue(decided.expires_in)
    dues = built.due, written.due, due, expires_in, waiting, taken, reword
    return next_outcome(dues, failure=refusal, problem=problem)
