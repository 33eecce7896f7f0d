"""The decider of TrainJobs: what is observed and decided of one (see `Reconciler`, and the package for the parts).

Guarantees:
- B27: a TrainJob whose workload had ended when it was deleted has ended; it is not built again.
- What is large is planned in a thread, while the event loop goes on, and so is everything where plugins of others take
  part. What plugins read meanwhile is what the caches hold by then: newer than what was observed, never half of it, and
  of no other effect than a later reconcile.
- The status of a workload changes often, and makes no difference to what its TrainJob is built of. So the plan of a
  TrainJob that consists of its snapshot and of one workload, which is left alone while it runs, is not made again
  while the TrainJob is the same but for its status, and its workload is there, runs, and has Jobs. Whatever else has
  the TrainJob reconciled than an event of itself or of its workload has it planned again; so does a restart.
- Pods that come up one by one cost a reconcile each second, not one each: counts are written no more often.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar, final

from trainmaster.controller.conditions import JOB_CREATION_FAILED, TIME_TO_LIVE_EXPIRED, set_condition, stored_status
from trainmaster.controller.diagnosis.counts import without_jobs
from trainmaster.controller.diagnosis.diagnosis import NOTHING, Diagnosis
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.log_context import in_thread
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.reconciler import Decider
from trainmaster.controller.reconciling.trainjobs.event_handlers import only_counters_change
from trainmaster.controller.reconciling.trainjobs.observe import (
    APIReader,
    DeletedWorkloads,
    Observed,
    RuntimeDenied,
    observe,
    with_live_runtime,
)
from trainmaster.controller.reconciling.trainjobs.plan import (
    may_serve,
    plan,
    replacement,
    seconds_to_deadline,
    time_to_live,
)
from trainmaster.controller.reconciling.trainjobs.plugin_failures import (
    RETRY_INTERVAL,
    SkippedPlugins,
    blocking,
    is_for_plugin,
)
from trainmaster.controller.reconciling.trainjobs.status import Plan, finished
from trainmaster.controller.reconciling.write_backoff import digest
from trainmaster.controller.reconciling.writes import JobEvent
from trainmaster.controller.resilience.goodput import RESIZED
from trainmaster.controller.resilience.resilience import Resilience
from trainmaster.metrics.trainjobs import count_node_failure, exemplar_of
from trainmaster.runtime.api.constants import MANAGED_BY_TRAINER
from trainmaster.runtime.api.decoding import parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.validation.runtime_ref import unsupported_runtime

T = TypeVar("T")

LARGE: Final = 64 * 1024
"""Bytes of a TrainJob and what belongs to it above which a thread makes the plan; usual are ten thousand, and the worst
that can be written with these takes 50 to 100 ms.
"""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class TrainJobDecider(Decider[Observed, Plan]):
    """Decides about TrainJobs."""

    api_reader: APIReader
    """Reads the runtime that the cache lacks."""

    trainjobs: Store
    listers: StoreListers
    """Over all other caches."""

    framework: Framework
    clock: Clock
    deleted_workloads: DeletedWorkloads
    diagnosis: Diagnosis
    resilience: Resilience
    skipped_plugins: SkippedPlugins
    planner: Executor | None = None
    """Where plans of large TrainJobs are made; by default in the threads of the event loop."""

    plugin_threads: PluginThreads | None = None
    """Where plans and status reports are made, if plugins of others take part."""

    _snapshot_digests: dict[str, tuple[str, str]] = field(default_factory=dict)
    """UIDs of TrainJobs and the digests of their snapshots that no status has yet, by key."""

    _lasting_plans: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """By key: from what a plan was made that lasts, and the time to live of its TrainJob."""

    def defer_counters(self, keys: Sequence[str], change: Delta) -> bool:
        """Keep the counters of a JobSet for later if nothing else has changed of it; return whether that is so.

        What plugins of others make of counters nobody knows.
        """
        if change.new is None or change.initial or change.resync or len(keys) != 1 or self.plugin_threads is not None:
            return False
        (key,) = keys
        if key not in self._lasting_plans or not only_counters_change(change):
            return False
        self.diagnosis.keep_counts(key, change.new)
        return True

    async def observe(self, key: str, raw: JsonObject) -> Observed | None:
        """Look up everything that the decision rests on; None: the TrainJob is another controller's."""
        spec = raw.get("spec")
        if isinstance(spec, dict) and (spec.get("managedBy") or MANAGED_BY_TRAINER) != MANAGED_BY_TRAINER:
            return None
        observed = await self._look_up(key, raw, parse_trainjob(raw))
        report, problem = await self._report(observed)
        verdict, findings, jobset = None, NOTHING, observed.jobset
        if observed.job.is_finished:
            findings = self.diagnosis.observe_ended(key, raw, jobset)
        elif jobset is not None:
            verdict = self.resilience.judge(key, raw, jobset)
            if verdict is not None and verdict.hides_end and report is not None:
                report = replace(report, conditions=[])
            if report is not None:
                findings = self.diagnosis.observe(key, raw, jobset, report)
        return observed._replace(report=report, report_problem=problem, verdict=verdict, findings=findings)

    async def _look_up(self, key: str, raw: JsonObject, job: TrainJob) -> Observed:
        deleted = self.deleted_workloads.last_states(key)
        observed = observe(job, raw, self.listers, deleted_workloads=deleted)
        if observed.snapshot is None and observed.runtime is None and not job.is_finished:
            try:
                listers = await with_live_runtime(job, observed.listers, self.api_reader)
            except RuntimeDenied as error:
                return observed._replace(runtime_denied=str(error))
            observed = observe(job, raw, listers, deleted_workloads=deleted)
        uid, digest = self._snapshot_digests.get(key, ("", ""))
        if observed.snapshot_digest:
            self._snapshot_digests.pop(key, None)
        elif uid == job.metadata.uid:
            observed = observed._replace(snapshot_digest=digest)
        return observed

    async def decide(self, key: str, observed: Observed) -> Plan:
        """Decide what to write, which status follows, and when to look again."""
        job, report, verdict = observed.job, observed.report, observed.verdict
        held_for = observed.findings.held_for if verdict is None or verdict.held_for is None else verdict.held_for
        if held_for is not None:
            return Plan(observed=observed, held_for=held_for)
        # Nothing is built for a job that ends with this reconcile, and no deadline can overtake it.
        ends = report is not None and finished(report.conditions) and not job.is_finished
        to_deadline = None if ends else seconds_to_deadline(job, self.clock.now())
        exceeded = to_deadline is not None and to_deadline <= 0
        fails = exceeded or (verdict is not None and verdict.failure is not None)
        if verdict is not None and verdict.replaces:
            planned = replacement(observed)
        elif ends:
            planned = Plan(observed=observed)
        else:
            planned = await self._plan(key, observed, fails, resizes=verdict is not None and verdict.resizes)
        if verdict is not None:
            planned.status_events += [_event(*each) for each in verdict.events]
            planned.look_again(verdict.due)
        planned.deadline_exceeded = exceeded
        planned.unsupported_runtime = unsupported_runtime(job.spec.runtime_ref)
        planned.problem = planned.problem or observed.report_problem
        planned.problem = self._refusal(key, planned) or planned.problem
        planned.skipped_condition = self.skipped_plugins.report(key, observed.raw, planned.skipped)
        if planned.snapshot_digest and not job.status.runtime_snapshot_digest:
            # Until a status has it; and before the snapshot is written, since that may be without an answer.
            self._snapshot_digests[key] = job.metadata.uid, planned.snapshot_digest
        retry = RETRY_INTERVAL if planned.skipped or is_for_plugin(planned.problem) else None
        planned.look_again(None if exceeded else to_deadline, retry)
        if ends or (not job.is_finished and (fails or planned.unsupported_runtime)):
            made, ttl = self._lasting_plans.get(key, (None, None))
            planned.look_again(ttl if made == _digest(observed.raw) else time_to_live(observed))
        # What plugins of others do about their own objects, or about a status, nobody knows.
        planned.settles = self.plugin_threads is None and _settles(planned)
        return planned

    async def _plan(self, key: str, observed: Observed, fails: bool, *, resizes: bool) -> Plan:
        made = self._lasting_plans.get(key) if not (fails or resizes) and not observed.job.is_finished else None
        if made is not None and _runs(observed) and made[0] == _digest(observed.raw):
            return Plan(observed=observed, skipped=())
        self.forget_plan(key)
        decide = partial(plan, observed, self.framework, fails=fails, resizes=resizes, now=self.clock.now())
        if self.plugin_threads is not None:
            try:
                return await self.plugin_threads.run(decide)
            except PluginFailed as error:
                return Plan(observed=observed, problem=blocking(error))
        is_large = self.trainjobs.size(key) + observed.size > LARGE
        return await in_thread(self.planner, decide) if is_large else decide()

    def unreadable_status(self, raw: JsonObject, problem: Problem) -> JsonObject | None:
        """Return the status that tells why a TrainJob cannot be read; None if it has ended."""
        old = stored_status(raw)
        conditions: list[JsonObject] = copy_tree(old["conditions"])
        if finished(conditions):
            return None
        set_condition(conditions, problem.condition(), now=time_text(self.clock.now()))
        return {**old, "conditions": conditions}

    def on_written(self, key: str, decided: Plan, status: JsonObject | None, *, is_built: bool = False) -> None:
        """Take note of what the status tells from now on, and keep a plan that lasts."""
        if is_built and decided.settles and decided.lasts and not any(each.uid for each in decided.applies):
            self._lasting_plans[key] = _digest(decided.observed.raw), decided.time_to_live
        if status is None:
            return
        verdict = decided.observed.verdict
        for attempt in verdict.news if verdict is not None else ():
            if attempt["charged"] and "node" in attempt:
                count_node_failure(attempt["node"], exemplar=exemplar_of(key))
        self.diagnosis.on_status_written(key, status)
        if finished(status.get("conditions") or []):
            self.forget_plan(key)

    def on_expired(self, raw: JsonObject) -> JobEvent:  # noqa: ARG002 - all say the same
        """Return the event of a TrainJob that was deleted at the end of its time to live."""
        note = "it had ended, and was deleted because its ttlSecondsAfterFinished was over"
        return JobEvent(TIME_TO_LIVE_EXPIRED, note)

    def forget_plan(self, key: str) -> None:
        """Have a TrainJob planned again."""
        self._lasting_plans.pop(key, None)

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self.skipped_plugins.forget(key)
        self.diagnosis.forget(key)
        self.resilience.forget(key)
        self.forget_plan(key)
        self._snapshot_digests.pop(key, None)

    def _refusal(self, key: str, planned: Plan) -> Problem | None:
        """Return why the JobSet of a TrainJob lacks Jobs, if it does and that is known."""
        lacks_jobs = planned.workload_without_jobs if planned.problem is None else None
        refusal = self.diagnosis.refusal(key, lacks_jobs)
        return None if refusal is None else Problem(JOB_CREATION_FAILED, refusal, retry=False)

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
            return await self._call(partial(may_serve, plugin, observed, self.framework))
        except PluginFailed:
            return True

    async def _call(self, function: Callable[[], T]) -> T:
        """Call what calls plugins, where it may block if one is of somebody else."""
        return function() if self.plugin_threads is None else await self.plugin_threads.run(function)

    def _ask_status(self, observed: Observed, without: Collection[str]) -> StatusReport | None:
        if observed.deleted_workloads:
            # A workload is gone. If it had ended, the job has (B27); otherwise there is nothing to report.
            states = [each.state for each in observed.deleted_workloads]
            last = self.framework.status(observed.job, observed.listers.with_objects(states), without=without)
            if last is not None and finished(last.conditions):
                return last
        if self.plugin_threads is not None:
            return self.framework.status(observed.job, observed.listers, without=without)
        # Our own report what a workload says, and leave it as it is, which others need not; and it is decoded already.
        listers = observed.listers.sharing(observed.workloads.values())
        return self.framework.status(observed.job, listers, without=without) if observed.workloads else None


def _settles(planned: Plan) -> bool:
    """Tell whether nothing is left to do when all that is planned is done."""
    if planned.deletes or planned.waiting or planned.skipped or planned.may_lack_jobs or planned.is_due:
        return False
    # What is built a second time meets what is known of the first time.
    observed = planned.observed
    rebuilt = bool((observed.raw.get("status") or {}).get("jobsStatus")) or bool(observed.deleted_workloads)
    return not (rebuilt and any(each.uid is None for each in planned.applies))


def _runs(observed: Observed) -> bool:
    """Tell whether a TrainJob is not suspended, and its only workload is at work."""
    if observed.job.spec.suspend or observed.snapshot is None or len(observed.workloads) != 1:
        return False
    (workload,) = observed.workloads.values()
    if workload["metadata"].get("deletionTimestamp") or (workload.get("spec") or {}).get("suspend"):
        return False
    return not without_jobs(workload)


def _event(reason: str, note: str) -> JobEvent:
    return JobEvent(reason, note, "Normal" if reason == RESIZED else "Warning")


def _digest(trainjob: JsonObject) -> int:
    metadata = {**trainjob["metadata"], "resourceVersion": None}
    # Each change of a spec is another generation.
    return digest([metadata, None if metadata.get("generation") else trainjob.get("spec")])
