"""The reconciler of TrainJobs: observe, plan, apply (see the package's docstring for the parts).

Guarantees:
- C-12: a settled TrainJob costs no request, and what comes back of its own writes no reconcile (see `echoes`).
- A crash between any two writes changes nothing in the end state: all that is remembered here only saves work.
- C-1, C-4: no key is reconciled before the caches have seen its own last writes, also when its object has been deleted
  and made again in between.
- B27: a TrainJob whose workload had ended when it was deleted has ended; it is not built again.
- C-9: a conflict drops the work of this reconcile; the next one reads again.
- What is large is planned in a thread, while the event loop goes on, and so is everything where plugins of others take
  part. What plugins read meanwhile is what the caches hold by then: newer than what was observed, never half of it, and
  of no other effect than a later reconcile.
- Pods that come up one by one cost a reconcile each second, not one each (see `counter_changes`).
- F-3: owner references and garbage collection suffice for cleaning up, so there is no finalizer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

import structlog

from trainmaster.controller.condition_types import TIME_TO_LIVE_EXPIRED
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store, StoreReader
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, ApiError, Conflict, TooManyRequests
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.conditions import set_condition, stored_status
from trainmaster.controller.reconciling.echoes import Echoes
from trainmaster.controller.reconciling.expectations import Expectations
from trainmaster.controller.reconciling.outcomes import (
    DONE,
    EXPECTATIONS_RECHECK,
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
from trainmaster.controller.reconciling.trainjobs.apply import Applier
from trainmaster.controller.reconciling.trainjobs.counter_changes import only_counters_change
from trainmaster.controller.reconciling.trainjobs.deadlines import seconds_to_deadline, seconds_to_expiry
from trainmaster.controller.reconciling.trainjobs.deleted_workloads import DeletedWorkloads
from trainmaster.controller.reconciling.trainjobs.first_failure_reporter import FirstFailureReporter
from trainmaster.controller.reconciling.trainjobs.first_failures import FirstFailures
from trainmaster.controller.reconciling.trainjobs.job_creation import JobCreation
from trainmaster.controller.reconciling.trainjobs.lasting_plans import LastingPlans
from trainmaster.controller.reconciling.trainjobs.observe import (
    GroupVersionKind,
    Observed,
    RuntimeDenied,
    StoreListers,
    observe,
    with_live_runtime,
)
from trainmaster.controller.reconciling.trainjobs.plan import Plan, may_serve, plan
from trainmaster.controller.reconciling.trainjobs.plugin_failures import (
    RETRY_INTERVAL,
    SkippedPlugins,
    blocking,
    is_for_plugin,
)
from trainmaster.controller.reconciling.trainjobs.status import finished, next_status, only_counters
from trainmaster.controller.reconciling.write_backoff import WriteBackoff
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.api import ApiTypeError, ObjectUnreadable, TrainJob, parse_trainjob
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND, MANAGED_BY_TRAINER
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject, copy_tree, why_unreadable
from trainmaster.runtime.validation.runtime_ref import unsupported_runtime

T = TypeVar("T")

log = structlog.get_logger(__name__)

LARGE: Final = 64 * 1024
"""Bytes of a TrainJob and what belongs to it above which a thread makes the plan; usual are ten thousand, and the worst
that can be written with these takes 50 to 100 ms.
"""


class TrainJobReconciler:
    """Reconciles TrainJobs.

    Args:
        client: Performs the writes, and reads what the caches lack.
        queue: Where its keys wait.
        trainjobs: The cache of TrainJobs.
        stores: All other caches, by API version and kind, each with its resource.
        workloads: The kinds of workloads.
        framework: The plugins.
        recorder: Where events go.
        clock: The time.
        deleted_workloads: The last states of workloads that are gone.
        planner: Where plans of large TrainJobs are made; by default in the threads of the event loop.
        plugin_threads: Where plans and status reports are made, if plugins of others take part.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        queue: WorkQueue,
        trainjobs: Store,
        stores: Mapping[GroupVersionKind, tuple[Resource, StoreReader]],
        workloads: Collection[GroupVersionKind],
        framework: Framework,
        recorder: EventRecorder,
        clock: Clock,
        deleted_workloads: DeletedWorkloads,
        planner: Executor | None = None,
        plugin_threads: PluginThreads | None = None,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._deleted_workloads = deleted_workloads
        self._trainjobs = trainjobs
        self._listers = StoreListers(stores, workloads=workloads)
        self._framework = framework
        self._clock = clock
        self._planner = planner
        self._plugin_threads = plugin_threads
        self._expectations = Expectations(clock=clock)
        self.echoes = Echoes(queue, self._expectations)
        """What stands between the events of what belongs to TrainJobs and the queue."""

        self._snapshot_digests: dict[str, tuple[str, str]] = {}
        """UIDs of TrainJobs and the digests of their snapshots that no status has yet, by key."""

        self._lasting_plans = LastingPlans()
        self._problem_reporter = ProblemReporter(recorder, clock, kind=TRAINJOBS.kind)
        self._skipped_plugins = SkippedPlugins(recorder, clock)
        self._job_creation = JobCreation(client, clock)
        self._failure_reporter = FirstFailureReporter(client, recorder, clock)
        write_backoff = WriteBackoff(clock)
        self._applier = Applier(
            client=client,
            trainjobs=trainjobs,
            stores=stores,
            expectations=self._expectations,
            write_backoff=write_backoff,
            problem_reporter=self._problem_reporter,
        )
        self._status_writer = StatusWriter(
            client=client,
            resource=TRAINJOBS,
            store=trainjobs,
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

    def delay_of(self, keys: Sequence[str], change: Delta) -> float:
        """Take note of a change of a JobSet; return the seconds that the TrainJobs which it concerns may wait for it.

        They may if nothing is to be done but to write counters, some time. What plugins of others make of these nobody
        knows.
        """
        if change.new is None or change.initial or change.resync or len(keys) != 1 or self._plugin_threads is not None:
            return 0.0
        (key,) = keys
        if key not in self._lasting_plans or not only_counters_change(change):
            return 0.0
        self._failure_reporter.note_counts(key, change.new)
        return self._status_writer.seconds_to_counters(key)

    async def reconcile(self, key: str) -> Outcome:
        """Bring one TrainJob to its desired state."""
        if self.echoes.begin(key):
            self._lasting_plans.forget(key)
        try:
            return await self._reconcile(key)
        finally:
            self.echoes.end(key)

    async def _reconcile(self, key: str) -> Outcome:
        raw = self._trainjobs.get(key)
        if not self._expectations.satisfied(key, raw["metadata"]["uid"] if raw else None):
            return ExpectationsPending(EXPECTATIONS_RECHECK)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            # Its children go with it, by garbage collection.
            self._problem_reporter.forget(key)
            self._skipped_plugins.forget(key)
            self._applier.forget(key)
            self._status_writer.forget(key)
            self._job_creation.forget(key)
            self._failure_reporter.forget(key)
            self._lasting_plans.forget(key)
            self._snapshot_digests.pop(key, None)
            return DONE
        if (reason := why_unreadable(raw)) is not None:
            # Whatever its status says stays as it is.
            problem = unreadable(TRAINJOBS.kind, f"{reason}; correct it")
            self._problem_reporter.report(key, raw, problem)
            return TerminalError(problem.message)
        spec = raw.get("spec")
        if isinstance(spec, dict) and (spec.get("managedBy") or MANAGED_BY_TRAINER) != MANAGED_BY_TRAINER:
            return DONE
        try:
            job = parse_trainjob(raw)
        except ApiTypeError as error:
            return await self._report_unreadable(key, raw, unreadable(TRAINJOBS.kind, str(error)))
        try:
            return await self._move_on(key, await self._observe(key, job, raw))
        except ObjectUnreadable as error:
            return await self._report_unreadable(key, raw, Problem("ObjectUnreadable", str(error), retry=False))

    async def _observe(self, key: str, job: TrainJob, raw: JsonObject) -> Observed:
        deleted = self._deleted_workloads.last_states(key)
        observed = observe(job, raw, self._listers, deleted_workloads=deleted)
        if observed.snapshot is None and observed.runtime is None and not job.is_finished:
            try:
                listers = await with_live_runtime(job, observed.listers, self._client)
            except RuntimeDenied as error:
                return observed._replace(runtime_denied=str(error))
            observed = observe(job, raw, listers, deleted_workloads=deleted)
        uid, digest = self._snapshot_digests.get(key, ("", ""))
        if observed.snapshot_digest:
            self._snapshot_digests.pop(key, None)
        elif uid == job.metadata.uid:
            observed = observed._replace(snapshot_digest=digest)
        return observed

    def _bind_snapshot(self, key: str, observed: Observed, planned: Plan) -> str:
        """Return the digest of the snapshot that counts for a TrainJob; remember it until a status has it."""
        if planned.snapshot_digest and not observed.job.status.runtime_snapshot_digest:
            self._snapshot_digests[key] = observed.job.metadata.uid, planned.snapshot_digest
        return planned.snapshot_digest or observed.snapshot_digest

    async def _move_on(self, key: str, observed: Observed) -> Outcome:
        now = self._clock.now()
        report, report_problem = await self._report(observed)
        first_failures, read_due = await self._first_failures(key, observed, report)
        # Nothing is built for a job that ends with this reconcile, and no deadline can overtake it.
        ends = report is not None and finished(report.conditions) and not observed.job.is_finished
        to_deadline = None if ends else seconds_to_deadline(observed.job, now)
        exceeded = to_deadline is not None and to_deadline <= 0
        planned = Plan() if ends else await self._plan(key, observed, exceeded, now)
        problem = planned.problem
        failure: ApiError | None = None
        write_due: float | None = None
        try:
            write_due = await self._applier.apply(key, observed, planned)
        except (Conflict, AlreadyExists, TooManyRequests):
            raise
        except NameTaken as error:
            problem = error.problem
        except ApiError as error:
            failure = error
            problem = Problem("ApplyFailed", str(error))
        problem = problem or report_problem
        look_due: float | None = None
        if problem is None and planned.workload_without_jobs is not None:
            problem, look_due = await self._job_creation.look(key, planned.workload_without_jobs)
        else:
            self._job_creation.forget(key)
        problem, wording_due = self._problem_reporter.keep_wording(key, observed.raw, problem)
        status = next_status(
            observed.job,
            observed.raw.get("status") or {},
            report=report,
            problem=problem,
            deadline_exceeded=exceeded,
            unsupported_runtime=unsupported_runtime(observed.job.spec.runtime_ref),
            skipped=self._skipped_plugins.condition(key, observed.raw, planned.skipped),
            first_failures=first_failures,
            waiting=self._failure_reporter.waiting(key, observed.raw),
            snapshot_digest=self._bind_snapshot(key, observed, planned),
            now=time_text(now),
        )
        status_due = await self._status_writer.write(key, observed.raw, status)
        self._problem_reporter.report(key, observed.raw, problem)
        expires_in = planned.expires_in
        if status_due is None:
            self._failure_reporter.note_status(key, status)
            if not observed.job.is_finished and finished(status.get("conditions") or []):
                self._failure_reporter.forget(key)
                time_to_live = self._lasting_plans.end(key, observed)
                expires_in = seconds_to_expiry(status.get("conditions") or (), time_to_live, now)
        deadline = to_requeue(to_deadline) if not exceeded else None
        expiry = to_requeue(expires_in)
        if planned.expires_in is not None and planned.expires_in <= 0 and not planned.deletes and status_due is None:
            if await self._applier.delete_expired(key, observed.raw):
                self._recorder.event(
                    observed.raw,
                    type="Normal",
                    reason=TIME_TO_LIVE_EXPIRED,
                    action=EVENT_ACTION,
                    note="it had ended, and was deleted because its ttlSecondsAfterFinished was over",
                )
            return DONE
        waiting = WAITING_INTERVAL if planned.waiting else None
        retry = RETRY_INTERVAL if planned.skipped or is_for_plugin(problem) else None
        if problem is None and write_due is None and self._has_settled(observed, planned, expires_in):
            self.echoes.settle(key)
            if planned.lasts and not any(each.uid for each in planned.applies):
                self._lasting_plans.note(key, observed, time_to_live=planned.time_to_live)
        # What a server refuses is asked again by the backoff alone.
        reword = None if failure else wording_due
        dues = (
            write_due,
            status_due,
            deadline,
            expiry,
            waiting,
            to_requeue(look_due),
            retry,
            reword,
            to_requeue(read_due),
        )
        return next_outcome(dues, failure=failure, problem=problem)

    def _has_settled(self, observed: Observed, planned: Plan, expires_in: float | None) -> bool:
        """Tell whether a TrainJob that nothing blocks needs no other reconcile for what was written in this one.

        What is due some time is no matter here: the outcome says when.
        """
        if self._plugin_threads is not None:
            return False  # nobody knows what plugins of others do about their own objects, or about a status
        if planned.deletes or planned.waiting or planned.skipped or planned.may_lack_jobs:
            return False
        if expires_in is not None and expires_in <= 0:
            return False
        # What is built a second time meets what is known of the first time.
        rebuilt = bool((observed.raw.get("status") or {}).get("jobsStatus")) or bool(observed.deleted_workloads)
        return not (rebuilt and any(each.uid is None for each in planned.applies))

    async def _first_failures(
        self, key: str, observed: Observed, report: StatusReport | None
    ) -> tuple[FirstFailures | None, float | None]:
        """Find out which failures there are to tell of, and when to look again."""
        jobset = observed.workloads.get((JOBSET_API_VERSION, JOBSET_KIND, observed.job.metadata.name))
        if observed.job.is_finished:
            self._failure_reporter.forget(key)
        elif jobset is not None and report is not None:
            return await self._failure_reporter.observe(key, observed.raw, jobset, report)
        return None, None

    async def _plan(self, key: str, observed: Observed, exceeded: bool, now: datetime) -> Plan:
        if not exceeded and not observed.job.is_finished and self._lasting_plans.lasts(key, observed):
            return Plan(skipped=())
        self._lasting_plans.forget(key)
        decide = partial(plan, observed, self._framework, deadline_exceeded=exceeded, now=now)
        if self._plugin_threads is not None:
            try:
                return await self._plugin_threads.run(decide)
            except PluginFailed as error:
                return Plan(problem=blocking(error))
        if self._trainjobs.size(key) + observed.size <= LARGE:
            return decide()
        # What log lines and traces say of the TrainJob goes along.
        return await asyncio.get_running_loop().run_in_executor(self._planner, copy_context().run, decide)

    async def _report(self, observed: Observed) -> tuple[StatusReport | None, Problem | None]:
        """Ask plugins for the state of the workload, of those that fail only the ones that serve the TrainJob."""
        without: set[str] = set()
        while True:
            try:
                return await self._call(partial(self._ask_status, observed, without)), None
            except PluginFailed as error:
                if await self._may_serve(error.plugin, observed):
                    return None, blocking(error)
                without.add(error.plugin)

    async def _may_serve(self, plugin: str, observed: Observed) -> bool:
        try:
            return await self._call(partial(may_serve, plugin, observed, self._framework))
        except PluginFailed:
            return True

    async def _call(self, function: Callable[[], T]) -> T:
        """Call what calls plugins, where it may block if one is of somebody else."""
        return function() if self._plugin_threads is None else await self._plugin_threads.run(function)

    def _ask_status(self, observed: Observed, without: Collection[str]) -> StatusReport | None:
        if observed.deleted_workloads:
            # A workload is gone. If it had ended, the job has (B27); otherwise there is nothing to report.
            states = [each.state for each in observed.deleted_workloads]
            last = self._framework.status(observed.job, observed.listers.with_objects(states), without=without)
            if last is not None and finished(last.conditions):
                return last
        if self._plugin_threads is not None:
            return self._framework.status(observed.job, observed.listers, without=without)
        # Our own report what a workload says, and leave it as it is, which others need not; and it is decoded already.
        listers = observed.listers.sharing(observed.workloads.values())
        return self._framework.status(observed.job, listers, without=without) if observed.workloads else None

    async def _report_unreadable(self, key: str, raw: JsonObject, problem: Problem) -> Outcome:
        """Tell the owner of a TrainJob that the API server accepted it, or a part of it, but nobody can read that."""
        old = stored_status(raw)
        conditions: list[JsonObject] = copy_tree(old["conditions"])
        if finished(conditions):
            self._problem_reporter.report(key, raw, problem)
            return DONE  # it needs nothing more of anybody
        set_condition(conditions, problem.condition(), now=time_text(self._clock.now()))
        status_due = await self._status_writer.write(key, raw, {**old, "conditions": conditions})
        self._problem_reporter.report(key, raw, problem)
        return TerminalError(problem.message) if status_due is None else RequeueAfter(status_due)
