"""The decider of one kind of jobs of `kubeflow.org/v1`: what is observed and decided of one (see `Reconciler`).

Guarantees:
- A job of many pods is not looked at for each of their events: what it costs grows with both. Pods that are wanted
  count as well, since each look goes through their names, and so do bytes. Plans of large jobs are made in a thread.
- Each event needs a reconcile, so no plan is kept: a kind decides from the pods that there are (`build`,
  `update_job_status`), so one that was just created says something new; and deadline and clean-up are decided from the
  status that was just written.
- What can never work is told once, as the condition Blocked, and not tried again before something changes (V1-B18).
- V1-B2: a failed pod is deleted, to be replaced, when the status counts that, if its job has a `backoffLimit`.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Final, final

from trainmaster.controller.conditions import stored_status
from trainmaster.controller.diagnosis.pod_warnings import PodWarnings
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.log_context import in_thread
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_value
from trainmaster.controller.reconciling.jobs.objects import Plan
from trainmaster.controller.reconciling.jobs.observe import JobStores, Observed, managed_by, observe
from trainmaster.controller.reconciling.jobs.plan import plan
from trainmaster.controller.reconciling.jobs.replicas import RestartBackoff
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.reconciler import Decider
from trainmaster.controller.reconciling.writes import JobEvent
from trainmaster.metrics.jobs import JobsMetrics
from trainmaster.runtime.jobs.condition_list import Conditions
from trainmaster.runtime.jobs.constants import FAILED, MANAGED_BY_TRAINING_OPERATOR, SUCCEEDED
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import Job, JobKind, contained
from trainmaster.runtime.jobs.podgroup import GangScheduler
from trainmaster.runtime.jsontree import JsonObject

MANY_PODS: Final = 200
SECONDS_PER_POD: Final = 0.001
"""From so many pods on, the time from one look at a job to the next, for each pod that it has or wants."""

BYTES_PER_POD: Final = 1000
"""Of a job: so many take as long as a pod."""

LARGE: Final = 1000
"""Pods from which on a plan is made in a thread; it takes 10 to 40 ms."""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class JobDecider(Decider[Observed, Plan]):
    """Decides about the jobs of one kind."""

    kind: JobKind
    stores: JobStores
    gang: GangScheduler | None
    recorder: InitVar[Recorder]
    clock: Clock
    planner: Executor | None = None
    """Where plans of large jobs are made; by default in the threads of the event loop."""

    _metrics: JobsMetrics = field(init=False)
    _pod_warnings: PodWarnings = field(init=False)
    _restarts: RestartBackoff = field(init=False)

    def __post_init__(self, recorder: Recorder) -> None:
        self._metrics = JobsMetrics(self.kind.framework)
        self._pod_warnings = PodWarnings(recorder)
        self._restarts = RestartBackoff(self.clock)

    def on_start(self) -> None:
        """Note that this process leads."""
        self._pod_warnings.on_start(self.clock.now())

    async def observe(self, key: str, raw: JsonObject) -> Observed | None:
        """Look up everything that the decision rests on; None: the job is another controller's."""
        if managed_by(raw) != MANAGED_BY_TRAINING_OPERATOR:
            return None
        with contained():
            job = parse_job(self.kind, raw)
        size = self._size(key, job)
        look_up = partial(observe, job, self.stores, size=size)
        return look_up() if size < LARGE else await in_thread(self.planner, look_up)

    def _size(self, key: str, job: Job) -> int:
        """Return how many pods a job has or wants, or is worth by its bytes.

        One that wants more than it may have gets none.
        """
        wanted = job.total_replicas if job.total_replicas <= job.kind.max_replicas else 0
        owner = owner_value(job.metadata.namespace, job.metadata.uid)
        existing = len(self.stores.pods.index_keys(OWNER_INDEX, owner))
        return max(wanted, existing, self.stores.jobs.size(key) // BYTES_PER_POD)

    async def decide(self, key: str, observed: Observed) -> Plan:  # noqa: ARG002 - the job has it
        """Decide what to write and when to look again."""
        now, size = self.clock.now(), observed.size

        def decide() -> Plan:
            with contained():
                return plan(observed, self.gang, now=now, restarts=self._restarts)

        planned = decide() if size < LARGE else await in_thread(self.planner, decide)
        planned.rests_for = size * SECONDS_PER_POD if size >= MANY_PODS else 0.0
        self._pod_warnings.tell(observed.job, observed.pods.values())
        return planned

    def unreadable_status(self, raw: JsonObject, problem: Problem) -> JsonObject | None:
        """Return the status that tells why a job cannot be read; None if it has ended."""
        old = stored_status(raw)
        conditions = Conditions(old["conditions"], time_text(self.clock.now()))
        if conditions.is_true(SUCCEEDED) or conditions.is_true(FAILED):
            return None
        told = problem.condition()
        conditions.put(told["type"], told["reason"], told["message"])
        return {**old, "conditions": conditions.to_json()}

    def on_written(self, key: str, decided: Plan, status: JsonObject | None, *, is_built: bool = False) -> None:  # noqa: ARG002
        """Count what happened, once the status says so, and the failed pods that are to be replaced."""
        job = decided.update.job
        for pods in decided.replaced:
            self._metrics.count("restarted", job.namespace)
            for pod in pods:
                self._restarts.record(job.metadata.uid, pod)
        for counter in decided.update.counts if status is not None else ():
            self._metrics.count(counter, job.namespace)

    def on_expired(self, raw: JsonObject) -> JobEvent:
        """Count that a job was deleted at the end of its time to live; return the event of that."""
        self._metrics.count("deleted", raw["metadata"]["namespace"])
        return JobEvent("SuccessfulDeleteJob", f"Deleted job: {raw['metadata']['name']}")

    def forget_plan(self, key: str) -> None:
        """Do nothing: no plan is kept."""

    def forget(self, key: str) -> None:
        """Do nothing: all that is remembered is bounded, and by UID."""
