"""The reconciler of one kind of jobs of `kubeflow.org/v1`: what is observed and decided of one (see `Reconciler`).

Guarantees:
- What nobody foresaw, in a kind of somebody else's for instance, is told by the job that it befell, and hurts no other.
- A job of many pods is not looked at for each of their events: what it costs grows with both. Pods that are wanted
  count as well, since each look goes through their names, and so do bytes. Plans of large jobs are made in a thread.
- What can never work is told once, as the condition Blocked, and not tried again before something changes (V1-B18).
- V1-B2: a failed pod is deleted, to be replaced, when the status counts that, if its job has a `backoffLimit`.
"""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial
from typing import Final

from trainmaster.controller.conditions import stored_status
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_value
from trainmaster.controller.reconciling.jobs.event_handlers import managed_by
from trainmaster.controller.reconciling.jobs.objects import Plan
from trainmaster.controller.reconciling.jobs.observe import JobStores, Observed, observe
from trainmaster.controller.reconciling.jobs.plan import plan
from trainmaster.controller.reconciling.jobs.pod_warnings import PodWarnings
from trainmaster.controller.reconciling.jobs.restart_backoff import RestartBackoff
from trainmaster.controller.reconciling.jobs.status import only_counters
from trainmaster.controller.reconciling.outcomes import Outcome
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.reconciler import Reconciler
from trainmaster.controller.reconciling.writes import JobEvent
from trainmaster.metrics.jobs import JobsMetrics
from trainmaster.runtime.jobs.conditions import Conditions
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


class JobReconciler(Reconciler[Job, Observed, Plan]):
    """Reconciles the jobs of one kind.

    Args:
        kind: The kind.
        resource: The same, as a resource.
        client: Performs the writes.
        queue: Where its keys wait.
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
        queue: WorkQueue,
        stores: JobStores,
        gang: GangScheduler | None,
        recorder: Recorder,
        clock: Clock,
        planner: Executor | None = None,
    ) -> None:
        super().__init__(
            client=client,
            resource=resource,
            jobs=stores.jobs,
            stores=stores.written(),
            queue=queue,
            recorder=recorder,
            clock=clock,
            only_counters=only_counters,
            planner=planner,
        )
        self._kind = kind
        self._stores = stores
        self._gang = gang
        self._metrics = JobsMetrics(kind.framework)
        self._next_look: dict[str, float] = {}
        """When a job of many pods is looked at next, by key."""

        self._pod_warnings = PodWarnings()
        self._restart_backoff = RestartBackoff(clock)

    def on_start(self) -> None:
        """Note that this process leads."""
        super().on_start()
        self._pod_warnings.on_start(self._clock.now())

    def _forget(self, key: str) -> None:
        super()._forget(key)
        self._next_look.pop(key, None)

    def _seconds_to_look(self, key: str) -> float:
        seconds = self._next_look.get(key, 0.0) - self._clock.monotonic()
        if seconds <= 0:
            self._next_look.pop(key, None)
        return seconds

    def _is_ours(self, raw: JsonObject) -> bool:
        return managed_by(raw) == MANAGED_BY_TRAINING_OPERATOR

    def _parse(self, raw: JsonObject) -> Job:
        with contained():
            return parse_job(self._kind, raw)

    async def _reconcile(self, key: str) -> Outcome:
        try:
            return await super()._reconcile(key)
        except KubeError:
            raise
        except Exception as error:
            raw = self._stores.jobs.get(key)
            if raw is not None:
                await self._report_unreadable(key, raw, self._failure(error))
            raise

    def _failure(self, error: Exception) -> Problem:
        told = f"an error of Trainmaster or of the kind {self._kind.kind} keeps the job from being worked on: "
        return Problem("InternalError", f"{told}{type(error).__name__}: {error}; the log of the manager has more")

    async def _observe(self, key: str, raw: JsonObject, job: Job) -> Observed:  # noqa: ARG002 - the job has it
        size = self._size(key, job)
        if size >= MANY_PODS:
            self._next_look[key] = self._clock.monotonic() + size * SECONDS_PER_POD
        look_up = partial(observe, job, self._stores, size=size)
        return look_up() if size < LARGE else await self._in_thread(look_up)

    def _size(self, key: str, job: Job) -> int:
        """Return how many pods a job has or wants, or is worth by its bytes.

        One that wants more than it may have gets none.
        """
        wanted = job.total_replicas if job.total_replicas <= job.kind.max_replicas else 0
        owner = owner_value(job.metadata.namespace, job.metadata.uid)
        existing = len(self._stores.pods.index_keys(OWNER_INDEX, owner))
        return max(wanted, existing, self._stores.jobs.size(key) // BYTES_PER_POD)

    async def _decide(self, key: str, observed: Observed) -> Plan:  # noqa: ARG002 - nothing is remembered
        now, wait = self._clock.now(), self._restart_backoff.wait

        def decide() -> Plan:
            with contained():
                return plan(observed, self._gang, now=now, wait=wait)

        planned = decide() if observed.size < LARGE else await self._in_thread(decide)
        self._record(observed.job.raw, self._pod_warnings.events(observed.job, observed.pods.values()))
        return planned

    def _status(self, key: str, observed: Observed, decided: Plan, problem: Problem | None) -> JsonObject:
        if problem is None and decided.is_partial:
            self._next_look.pop(key, None)
        if problem is not None and not observed.pods:
            decided.update.not_started()
        decided.update.blocked(problem)
        return decided.update.to_json()

    def _on_status(self, key: str, observed: Observed, decided: Plan, status: JsonObject) -> None:  # noqa: ARG002
        for counter in decided.update.counts:
            self._metrics.count(counter, observed.job.namespace)
        self._record(observed.job.raw, decided.update.events)

    def _on_deleted(self, observed: Observed, decided: Plan) -> None:
        for name in decided.replaced:
            self._restart_backoff.record(observed.job.metadata.uid, name)

    def _on_expired(self, observed: Observed) -> None:
        self._metrics.count("deleted", observed.job.namespace)
        note = f"Deleted job: {observed.job.name}"
        self._record(observed.job.raw, [JobEvent("SuccessfulDeleteJob", note)])

    def _status_of_unreadable(self, raw: JsonObject, problem: Problem) -> JsonObject | None:
        old = stored_status(raw)
        conditions = Conditions(old["conditions"], time_text(self._clock.now()))
        if conditions.is_true(SUCCEEDED) or conditions.is_true(FAILED):
            return None
        told = problem.condition()
        conditions.put(told["type"], told["reason"], told["message"])
        return {**old, "conditions": conditions.to_json()}
