"""The reconciler of TrainJobs: what is observed and decided of one (see `Reconciler`, and the package for the parts).

Guarantees:
- B27: a TrainJob whose workload had ended when it was deleted has ended; it is not built again.
- What is large is planned in a thread, while the event loop goes on, and so is everything where plugins of others take
  part. What plugins read meanwhile is what the caches hold by then: newer than what was observed, never half of it, and
  of no other effect than a later reconcile.
- Pods that come up one by one cost a reconcile each second, not one each (see `lasting_plans`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

from trainmaster.controller.condition_types import JOB_CREATION_FAILED, TIME_TO_LIVE_EXPIRED
from trainmaster.controller.conditions import set_condition, stored_status
from trainmaster.controller.diagnosis.diagnosis import NOTHING, Diagnosis, Findings
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store, StoreReader
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.kube.events.recorder import EventRecorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.workqueue.queue import CHANGE_PRIORITY, WorkQueue
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.reconciler import Reconciler
from trainmaster.controller.reconciling.trainjobs.deadlines import seconds_to_deadline, seconds_to_expiry
from trainmaster.controller.reconciling.trainjobs.deleted_workloads import DeletedWorkloads
from trainmaster.controller.reconciling.trainjobs.lasting_plans import LastingPlans, only_counters_change
from trainmaster.controller.reconciling.trainjobs.observe import (
    Observed,
    RuntimeDenied,
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
from trainmaster.controller.reconciling.writes import GroupVersionKind, JobEvent
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.api import TrainJob, parse_trainjob
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND, MANAGED_BY_TRAINER
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.validation.runtime_ref import unsupported_runtime

T = TypeVar("T")

LARGE: Final = 64 * 1024
"""Bytes of a TrainJob and what belongs to it above which a thread makes the plan; usual are ten thousand, and the worst
that can be written with these takes 50 to 100 ms.
"""


class TrainJobReconciler(Reconciler[TrainJob, Observed, Plan]):
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
        diagnosis: Knows why TrainJobs wait or fail.
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
        diagnosis: Diagnosis,
        planner: Executor | None = None,
        plugin_threads: PluginThreads | None = None,
    ) -> None:
        super().__init__(
            client=client,
            resource=TRAINJOBS,
            jobs=trainjobs,
            stores=stores,
            queue=queue,
            recorder=recorder,
            clock=clock,
            only_counters=only_counters,
            planner=planner,
            is_quiet=True,
        )
        self._client = client
        self._deleted_workloads = deleted_workloads
        self._listers = StoreListers(stores, workloads=workloads)
        self._framework = framework
        self._plugin_threads = plugin_threads
        self._snapshot_digests: dict[str, tuple[str, str]] = {}
        """UIDs of TrainJobs and the digests of their snapshots that no status has yet, by key."""

        self._lasting_plans = LastingPlans()
        self._skipped_plugins = SkippedPlugins(recorder, clock)
        self._diagnosis = diagnosis
        diagnosis.on_finding = lambda key: self.echoes.add(key, None, priority=CHANGE_PRIORITY)

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
        self._diagnosis.note_counts(key, change.new)
        return self._status_writer.seconds_to_counters(key)

    def _begin_anew(self, key: str) -> None:
        self._lasting_plans.forget(key)

    def _forget(self, key: str) -> None:
        super()._forget(key)
        self._skipped_plugins.forget(key)
        self._diagnosis.forget(key)
        self._lasting_plans.forget(key)
        self._snapshot_digests.pop(key, None)

    def _is_ours(self, raw: JsonObject) -> bool:
        spec = raw.get("spec")
        return not isinstance(spec, dict) or (spec.get("managedBy") or MANAGED_BY_TRAINER) == MANAGED_BY_TRAINER

    def _parse(self, raw: JsonObject) -> TrainJob:
        return parse_trainjob(raw)

    async def _observe(self, key: str, raw: JsonObject, job: TrainJob) -> Observed:
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

    async def _decide(self, key: str, observed: Observed) -> Plan:
        report, report_problem = await self._report(observed)
        findings = self._findings(key, observed, report)
        if findings.held_for is not None:
            return Plan(held_for=findings.held_for)
        # Nothing is built for a job that ends with this reconcile, and no deadline can overtake it.
        ends = report is not None and finished(report.conditions) and not observed.job.is_finished
        to_deadline = None if ends else seconds_to_deadline(observed.job, self._clock.now())
        exceeded = to_deadline is not None and to_deadline <= 0
        planned = Plan() if ends else await self._plan(key, observed, exceeded)
        planned.report, planned.first_failures, planned.deadline_exceeded = report, findings.first_failures, exceeded
        planned.problem = planned.problem or report_problem
        if planned.problem is None and planned.workload_without_jobs is not None:
            if (refusal := self._diagnosis.refusal(key, planned.workload_without_jobs)) is not None:
                planned.problem = Problem(JOB_CREATION_FAILED, refusal, retry=False)
        else:
            self._diagnosis.forget_refusal(key)
        if planned.snapshot_digest and not observed.job.status.runtime_snapshot_digest:
            # Until a status has it; and before the snapshot is written, since that may be without an answer.
            self._snapshot_digests[key] = observed.job.metadata.uid, planned.snapshot_digest
        retry = RETRY_INTERVAL if planned.skipped or is_for_plugin(planned.problem) else None
        planned.look_again(None if exceeded else to_deadline, retry)
        return planned

    async def _plan(self, key: str, observed: Observed, exceeded: bool) -> Plan:
        if not exceeded and not observed.job.is_finished and self._lasting_plans.lasts(key, observed):
            return Plan(skipped=())
        self._lasting_plans.forget(key)
        decide = partial(plan, observed, self._framework, deadline_exceeded=exceeded, now=self._clock.now())
        if self._plugin_threads is not None:
            try:
                return await self._plugin_threads.run(decide)
            except PluginFailed as error:
                return Plan(problem=blocking(error))
        is_large = self._jobs.size(key) + observed.size > LARGE
        return await self._in_thread(decide) if is_large else decide()

    def _status(self, key: str, observed: Observed, decided: Plan, problem: Problem | None) -> JsonObject:
        job, raw, now = observed.job, observed.raw, self._clock.now()
        status = next_status(
            job,
            raw.get("status") or {},
            report=decided.report,
            problem=problem,
            deadline_exceeded=decided.deadline_exceeded,
            unsupported_runtime=unsupported_runtime(job.spec.runtime_ref),
            skipped=self._skipped_plugins.condition(key, raw, decided.skipped),
            first_failures=decided.first_failures,
            waiting=self._diagnosis.waiting(key, raw, _jobset(observed)),
            snapshot_digest=decided.snapshot_digest or observed.snapshot_digest,
            now=time_text(now),
        )
        if self._ends(observed, status):
            time_to_live = self._lasting_plans.time_to_live(key, observed)
            decided.look_again(seconds_to_expiry(status["conditions"], time_to_live, now))
        return status

    def _on_status(self, key: str, observed: Observed, decided: Plan, status: JsonObject) -> None:  # noqa: ARG002
        self._diagnosis.note_status(key, status)
        if finished(conditions := status.get("conditions") or []):
            self._diagnosis.forget_ended(key, conditions)
            self._lasting_plans.forget(key)

    def _ends(self, observed: Observed, status: JsonObject) -> bool:
        return not observed.job.is_finished and finished(status.get("conditions") or [])

    def _on_expired(self, observed: Observed) -> None:
        note = "it had ended, and was deleted because its ttlSecondsAfterFinished was over"
        self._record(observed.raw, [JobEvent(TIME_TO_LIVE_EXPIRED, note)])

    def _settle(self, key: str, observed: Observed, decided: Plan) -> None:
        if self._plugin_threads is not None:
            return  # nobody knows what plugins of others do about their own objects, or about a status
        if decided.deletes or decided.waiting or decided.skipped or decided.may_lack_jobs or decided.is_due:
            return
        # What is built a second time meets what is known of the first time.
        rebuilt = bool((observed.raw.get("status") or {}).get("jobsStatus")) or bool(observed.deleted_workloads)
        if rebuilt and any(each.uid is None for each in decided.applies):
            return
        self.echoes.settle(key)
        if decided.lasts and not any(each.uid for each in decided.applies):
            self._lasting_plans.note(key, observed, time_to_live=decided.time_to_live)

    def _findings(self, key: str, observed: Observed, report: StatusReport | None) -> Findings:
        """Return what was found of failures, and for how long the end of the job is not to be told."""
        if observed.job.is_finished:
            return self._diagnosis.observe_ended(key)
        jobset = _jobset(observed)
        if jobset is None or report is None:
            return NOTHING
        return self._diagnosis.observe(key, observed.raw, jobset, report)

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

    def _status_of_unreadable(self, raw: JsonObject, problem: Problem) -> JsonObject | None:
        old = stored_status(raw)
        conditions: list[JsonObject] = copy_tree(old["conditions"])
        if finished(conditions):
            return None
        set_condition(conditions, problem.condition(), now=time_text(self._clock.now()))
        return {**old, "conditions": conditions}


def _jobset(observed: Observed) -> JsonObject | None:
    return observed.workloads.get((JOBSET_API_VERSION, JOBSET_KIND, observed.job.metadata.name))
