"""The reconciler of one kind of jobs: observe, plan, apply (see the package's docstring for the parts).

Guarantees:
- C-12: a settled job costs no request.
- A crash between any two writes changes nothing in the end state: all that is remembered here only saves work.
- C-1, C-4 (V1-B8): no key is reconciled before the caches have seen its own last writes, all of them.
- What nobody foresaw, in a kind of somebody else's for instance, is told by the job that it befell, and hurts no other.
- A job of many pods is not looked at for each of their events: what it costs grows with both. Pods that are wanted
  count as well, since each look goes through their names, and so do bytes. Plans of large jobs are made in a thread.
- What can never work is told once, as the condition Blocked, and not tried again before something changes (V1-B18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Final

import structlog

from trainmaster.controller.condition_types import NAME_TAKEN
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    KubeError,
    TooManyRequests,
)
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.conditions import stored_status
from trainmaster.controller.reconciling.expectations import Expectations
from trainmaster.controller.reconciling.jobs.apply import ACTION, Applier
from trainmaster.controller.reconciling.jobs.event_handlers import managed_by
from trainmaster.controller.reconciling.jobs.observe import JobStores, Observed, observe
from trainmaster.controller.reconciling.jobs.plan import plan
from trainmaster.controller.reconciling.jobs.pod_warnings import PodWarnings
from trainmaster.controller.reconciling.jobs.restart_backoff import RestartBackoff
from trainmaster.controller.reconciling.jobs.status import JobEvent, StatusUpdate, only_counters
from trainmaster.controller.reconciling.jobs.types import Plan
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
from trainmaster.controller.reconciling.owned_objects import OWNER_INDEX, owner_value
from trainmaster.controller.reconciling.problems import NameTaken, Problem, ProblemReporter, unreadable
from trainmaster.controller.reconciling.status_writer import StatusWriter
from trainmaster.controller.reconciling.write_backoff import WriteBackoff
from trainmaster.metrics.jobs import JobsMetrics
from trainmaster.runtime.api import ApiTypeError
from trainmaster.runtime.jobs.conditions import Conditions
from trainmaster.runtime.jobs.constants import FAILED, MANAGED_BY_TRAINING_OPERATOR, SUCCEEDED
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job, JobKind, contained
from trainmaster.runtime.jobs.podgroup import GangScheduler
from trainmaster.runtime.jsontree import JsonObject, why_unreadable

log = structlog.get_logger(__name__)

_FINISHED: Final = (SUCCEEDED, FAILED)

MANY_PODS: Final = 200
SECONDS_PER_POD: Final = 0.001
"""From so many pods on, the time from one look at a job to the next, for each pod that it has or wants."""

BYTES_PER_POD: Final = 1000
"""Of a job: so many take as long as a pod."""

LARGE: Final = 1000
"""Pods from which on a plan is made in a thread; it takes 10 to 40 ms."""


class JobReconciler:
    """Reconciles the jobs of one kind.

    Args:
        kind: The kind.
        resource: The same, as a resource.
        client: Performs the writes.
        stores: The caches.
        gang: The gang scheduler, if there is one.
        recorder: Where events go.
        clock: The time.
        planner: Where plans of large jobs are made; by default in the threads of the event loop.
    """

    def __init__(
        self,
        kind: JobKind,
        resource: Resource,
        *,
        client: KubeClient,
        stores: JobStores,
        gang: GangScheduler | None,
        recorder: Recorder,
        clock: Clock,
        planner: Executor | None = None,
    ) -> None:
        self._kind = kind
        self._planner = planner
        self._stores = stores
        self._gang = gang
        self._recorder = recorder
        self._clock = clock
        self._metrics = JobsMetrics(kind.framework)
        self._expectations = Expectations(clock=clock)
        self._problem_reporter = ProblemReporter(recorder, clock, kind=kind.kind)
        self._next_look: dict[str, float] = {}
        """When a job of many pods is looked at next, by key."""

        self._pod_warnings = PodWarnings()
        self._restart_backoff = RestartBackoff(clock)
        self._applier = Applier(
            client=client, resource=resource, stores=stores, expectations=self._expectations, recorder=recorder
        )
        self._status_writer = StatusWriter(
            client=client,
            resource=resource,
            store=stores.jobs,
            only_counters=only_counters,
            expectations=self._expectations,
            write_backoff=WriteBackoff(clock),
            problem_reporter=self._problem_reporter,
            clock=clock,
        )

    def on_start(self) -> None:
        """Note that this process leads."""
        self._pod_warnings.on_start(self._clock.now())

    def unobserved(self) -> list[str]:
        """Name the keys that should have been reconciled again after a write of theirs."""
        return self._expectations.unobserved()

    async def reconcile(self, key: str) -> Outcome:
        """Bring one job to its desired state."""
        raw = self._stores.jobs.get(key)
        if not self._expectations.satisfied(key, raw["metadata"]["uid"] if raw else None):
            return ExpectationsPending(EXPECTATIONS_RECHECK)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            # Its children go with it, by garbage collection.
            self._next_look.pop(key, None)
            self._problem_reporter.forget(key)
            self._status_writer.forget(key)
            return DONE
        early = self._next_look.get(key, 0.0) - self._clock.monotonic()
        if early > 0:
            return ExpectationsPending(early)
        self._next_look.pop(key, None)
        if (reason := why_unreadable(raw)) is not None:
            # Whatever its status says stays as it is.
            problem = unreadable(self._kind.kind, f"{reason}; correct it")
            self._problem_reporter.report(key, raw, problem)
            return TerminalError(problem.message)
        if managed_by(raw) != MANAGED_BY_TRAINING_OPERATOR:
            return DONE
        try:
            with contained():
                job = parse_job(self._kind, raw)
        except ApiTypeError as error:
            return await self._report_unread(key, raw, unreadable(self._kind.kind, str(error)))
        except Exception as error:
            await self._report_unread(key, raw, self._failure(error))
            raise
        try:
            return await self._reconcile(key, job)
        except KubeError:
            raise
        except Exception as error:
            await self._report_failure(key, job, error)
            raise

    async def _reconcile(self, key: str, job: Job) -> Outcome:
        size = self._size(key, job)
        if size >= MANY_PODS:
            self._next_look[key] = self._clock.monotonic() + size * SECONDS_PER_POD
        observed, planned = await self._plan(job, size)
        self._record(job, self._pod_warnings.events(job, observed.pods.values()))
        problem, failure = await self._build(key, job, planned)
        if planned.is_partial and problem is None:
            self._next_look.pop(key, None)
        if problem is not None and not observed.pods:
            planned.update.not_started()
        problem, wording_due = self._problem_reporter.keep_wording(key, job.raw, problem)
        planned.update.blocked(problem)
        status_due = await self._write_status(key, job, planned.update)
        self._problem_reporter.report(key, job.raw, problem)
        self._record(job, planned.events)
        if status_due is None or job.run_policy.backoff_limit is None:
            await self._applier.delete(key, job, planned.deletes)
            for name in planned.replaced:
                self._restart_backoff.record(job.metadata.uid, name)
        if planned.expired and not planned.deletes and status_due is None:
            if await self._applier.delete_expired(key, job):
                self._metrics.count("deleted", job.namespace)
            return DONE
        waiting = WAITING_INTERVAL if planned.waiting else None
        taken = UNTIL_FREED if problem is not None and problem.reason == NAME_TAKEN else None
        dues = (to_requeue(planned.due), status_due, waiting, taken, None if failure else wording_due)
        return next_outcome(dues, failure=failure, problem=problem)

    def _size(self, key: str, job: Job) -> int:
        """Return how many pods a job has or wants, or is worth by its bytes.

        One that wants more than it may have gets none.
        """
        wanted = job.total_replicas if job.total_replicas <= job.kind.max_replicas else 0
        owner = owner_value(job.metadata.namespace, job.metadata.uid)
        existing = len(self._stores.pods.index_keys(OWNER_INDEX, owner))
        return max(wanted, existing, self._stores.jobs.size(key) // BYTES_PER_POD)

    async def _plan(self, job: Job, size: int) -> tuple[Observed, Plan]:
        now, wait = self._clock.now(), self._restart_backoff.wait

        def decide() -> tuple[Observed, Plan]:
            observed = observe(job, self._stores)
            with contained():
                return observed, plan(observed, self._gang, now=now, wait=wait)

        if size < LARGE:
            return decide()
        return await asyncio.get_running_loop().run_in_executor(self._planner, copy_context().run, decide)

    async def _build(self, key: str, job: Job, planned: Plan) -> tuple[Problem | None, ApiError | None]:
        """Perform what a plan makes; returns what stands in the way of the job, and the refusal if it was one."""
        try:
            await self._applier.apply(key, job, planned.applies)
            await self._applier.create(key, job, planned.creates)
        except (Conflict, AlreadyExists, TooManyRequests):
            raise
        except NameTaken as error:
            return error.problem, None
        except ApiError as error:
            return Problem("ApplyFailed", str(error)), error
        return planned.problem, None

    async def _write_status(self, key: str, job: Job, update: StatusUpdate) -> float | None:
        due = await self._status_writer.write(key, job.raw, update.to_json())
        if due is None:
            for counter in update.counts:
                self._metrics.count(counter, job.namespace)
            self._record(job, update.events)
        return due

    def _record(self, job: Job, events: Iterable[JobEvent]) -> None:
        for each in events:
            self._recorder.event(job.raw, type=each.type, reason=each.reason, action=ACTION, note=each.note)

    async def _report_failure(self, key: str, job: Job, error: Exception) -> None:
        """Tell the owner of a job that nobody foresaw what became of it; the log has the rest."""
        problem = self._failure(error)
        update = StatusUpdate(job, self._clock.now())
        update.blocked(problem)
        await self._write_status(key, job, update)
        self._problem_reporter.report(key, job.raw, problem)

    def _failure(self, error: Exception) -> Problem:
        told = f"an error of Trainmaster or of the kind {self._kind.kind} keeps the job from being worked on: "
        return Problem("InternalError", f"{told}{type(error).__name__}: {error}; the log of the manager has more")

    async def _report_unread(self, key: str, raw: JsonObject, problem: Problem) -> Outcome:
        """Tell the owner of a job that the API server accepted it, but that it could not be read."""
        old = stored_status(raw)
        conditions = Conditions(old["conditions"], time_text(self._clock.now()))
        status_due = None
        if not any(map(conditions.is_true, _FINISHED)):
            told = problem.condition()
            conditions.put(told["type"], told["reason"], told["message"])
            status_due = await self._status_writer.write(key, raw, {**old, "conditions": conditions.to_json()})
        self._problem_reporter.report(key, raw, problem)
        return TerminalError(problem.message) if status_due is None else RequeueAfter(status_due)
