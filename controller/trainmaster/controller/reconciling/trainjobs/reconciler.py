"""The reconciler of TrainJobs: observes, decides, acts (see the package's docstring for the parts).

Guarantees:
- A settled TrainJob costs no request (C-12).
- A crash between any two writes changes nothing in the end state: all that is remembered here only saves work.
- No key is reconciled before the caches have seen its own last writes (C-4).
- Every write carries the UID of what it is about, or creates it (C-10, L-14).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from trainmaster.controller.kube.client import KubeClient
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from trainmaster.controller.kube.events import EventRecorder
from trainmaster.controller.kube.resources import TRAINJOBS, Resource
from trainmaster.controller.kube.storing import Store
from trainmaster.controller.reconciling.conditions import set_condition
from trainmaster.controller.reconciling.gate import WriteGate
from trainmaster.controller.reconciling.outcomes import DONE, NotYet, Outcome, RequeueAfter, Retry
from trainmaster.controller.reconciling.trainjobs.deadlines import seconds_left
from trainmaster.controller.reconciling.trainjobs.observing import KindKey, Observed, StoreFacts, observe
from trainmaster.controller.reconciling.trainjobs.planning import Plan, plan, unsupported_runtime
from trainmaster.controller.reconciling.trainjobs.problems import EVENT_ACTION, EVENT_REASON, Problem
from trainmaster.controller.reconciling.trainjobs.statuses import next_status, status_patch
from trainmaster.runtime.api import ApiTypeError, parse_trainjob
from trainmaster.runtime.api.constants import FIELD_MANAGER, MANAGED_BY_TRAINER
from trainmaster.runtime.extension import StatusReport
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.jsontree import JsonObject, copy_tree

log = structlog.get_logger(__name__)

GATE_PATIENCE = 1.0
"""Seconds until a key looks again whether the caches have caught up; their events usually come much earlier."""

WAITING_INTERVAL = 5.0
"""Seconds between looks at an object that garbage collection should remove; its deletion is an event as well."""

SHORTEST_REQUEUE = 1.0

RETELL_INTERVAL = 30.0
"""Seconds before a problem is told again in other words. Messages of servers hold ports, times and request ids that
differ on every try; and each write of a status wakes the TrainJob up, past its backoff.
"""


@dataclass(frozen=True, slots=True)
class _Told:
    """A problem that the owner of a TrainJob was told of."""

    uid: str
    problem: Problem
    at: float


class TrainJobReconciler:
    """Reconciles TrainJobs.

    Args:
        client: Performs the writes.
        trainjobs: The cache of TrainJobs.
        stores: All other caches, by API version and kind, each with its resource.
        framework: The plugins.
        recorder: Where events go.
        clock: The time.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        trainjobs: Store,
        stores: Mapping[KindKey, tuple[Resource, Store]],
        framework: Framework,
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._trainjobs = trainjobs
        self._resources = {key: resource for key, (resource, _) in stores.items()}
        self._stores = {key: store for key, (_, store) in stores.items()}
        self._facts = StoreFacts(stores)
        self._framework = framework
        self._recorder = recorder
        self._clock = clock
        self._gate = WriteGate()
        self._reported: dict[str, _Told] = {}
        """By key: what was told last, so that an unchanged problem is told once."""

    async def reconcile(self, key: str) -> Outcome:
        """Bring one TrainJob to its desired state."""
        raw = self._trainjobs.get(key)
        if raw is None or raw["metadata"].get("deletionTimestamp"):
            # Its children go with it, by garbage collection.
            self._forget(key)
            return DONE
        if not self._gate.is_open(key):
            return NotYet(GATE_PATIENCE)
        if ((raw.get("spec") or {}).get("managedBy") or MANAGED_BY_TRAINER) != MANAGED_BY_TRAINER:
            return DONE
        try:
            job = parse_trainjob(raw)
        except ApiTypeError as error:
            return await self._report_unreadable(key, raw, error)
        return await self._reconcile(key, observe(job, raw, self._facts))

    async def _reconcile(self, key: str, observed: Observed) -> Outcome:
        now = self._clock.now()
        left = seconds_left(observed.job, now)
        exceeded = left is not None and left <= 0
        planned = plan(observed, self._framework, deadline_exceeded=exceeded)
        problem = planned.problem
        failure: ApiError | None = None
        try:
            await self._act(key, planned)
        except (Conflict, TooManyRequests):
            raise
        except ApiError as error:
            failure = error
            problem = Problem("ApplyFailed", str(error))
        report, report_problem = self._ask_for_status(observed)
        problem = self._reworded(key, observed.raw, problem or report_problem)
        await self._write_status(key, observed, report, problem, exceeded=exceeded, now=now)
        self._tell(key, observed.raw, problem)
        if exceeded:
            left = None
        if failure is not None:
            return Retry(str(failure), at_latest=left)
        if problem is not None and problem.retry:
            return Retry(problem.message, at_latest=left)
        return _next_look(planned, left)

    async def _act(self, key: str, planned: Plan) -> None:
        for obj in planned.deletes:
            await self._delete(obj)
        for obj in planned.applies:
            kind = (obj["apiVersion"], obj["kind"])
            applied = await self._client.apply(self._resources[kind], obj, field_manager=FIELD_MANAGER)
            log.info("applied", kind=obj["kind"], object=obj["metadata"]["name"])
            self._gate.record(key, obj["kind"], applied["metadata"]["resourceVersion"], self._stores[kind])

    async def _delete(self, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        resource = self._resources[obj["apiVersion"], obj["kind"]]
        try:
            await self._client.delete(resource, metadata["namespace"], metadata["name"], uid=metadata["uid"])
            log.info("deleted", kind=obj["kind"], object=metadata["name"])
        except (NotFound, Conflict):
            # Gone already, or another one by now: either way this one is no more.
            return

    def _ask_for_status(self, observed: Observed) -> tuple[StatusReport | None, Problem | None]:
        try:
            return self._framework.status(observed.job, observed.facts), None
        except PluginFailed as error:
            return None, Problem("PluginFailed", str(error))

    async def _write_status(
        self,
        key: str,
        observed: Observed,
        report: StatusReport | None,
        problem: Problem | None,
        *,
        exceeded: bool,
        now: datetime,
    ) -> None:
        old = observed.raw.get("status") or {}
        new = next_status(
            observed.job,
            old,
            report=report,
            problem=problem,
            deadline_exceeded=exceeded,
            unsupported_runtime=unsupported_runtime(observed.job),
            now=_stamp(now),
        )
        await self._patch_status(key, observed.raw, old, new)

    async def _patch_status(self, key: str, raw: JsonObject, old: JsonObject, new: JsonObject) -> None:
        patch = status_patch(old, new)
        if patch is None:
            return
        metadata = raw["metadata"]
        patch["metadata"] = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        try:
            patched = await self._client.patch(
                TRAINJOBS,
                metadata["namespace"],
                metadata["name"],
                patch,
                subresource="status",
                field_manager=FIELD_MANAGER,
            )
        except NotFound:
            return
        holding = [c["type"] for c in new.get("conditions") or [] if c.get("status") == "True"]
        log.info("status changed", conditions=holding)
        self._gate.record(key, "TrainJob", patched["metadata"]["resourceVersion"], self._trainjobs)

    async def _report_unreadable(self, key: str, raw: JsonObject, error: ApiTypeError) -> Outcome:
        """Tell the owner of a TrainJob that the API server accepted but nobody can read."""
        problem = Problem("TrainJobInvalid", f"the TrainJob cannot be read: {error}", retry=False)
        old = raw.get("status") or {}
        stored = old.get("conditions")
        conditions = copy_tree(stored) if isinstance(stored, list) else []
        set_condition(conditions, problem.condition(), now=_stamp(self._clock.now()))
        await self._patch_status(key, raw, old, {**old, "conditions": conditions})
        self._tell(key, raw, problem)
        return DONE

    def _reworded(self, key: str, raw: JsonObject, problem: Problem | None) -> Problem | None:
        """Return the problem, in its earlier words if those were told a short while ago."""
        told = self._reported.get(key)
        if problem is None or told is None or told.uid != raw["metadata"]["uid"]:
            return problem
        recent = self._clock.monotonic() - told.at < RETELL_INTERVAL
        return told.problem if recent and told.problem.reason == problem.reason else problem

    def _tell(self, key: str, raw: JsonObject, problem: Problem | None) -> None:
        if problem is None:
            self._reported.pop(key, None)
            return
        uid = raw["metadata"]["uid"]
        told = self._reported.get(key)
        if told is not None and (told.uid, told.problem) == (uid, problem):
            return
        self._reported[key] = _Told(uid, problem, self._clock.monotonic())
        log.warning("the TrainJob is blocked", reason=problem.reason, message=problem.message)
        self._recorder.event(raw, type="Warning", reason=EVENT_REASON, action=EVENT_ACTION, note=problem.note())

    def _forget(self, key: str) -> None:
        self._gate.forget(key)
        self._reported.pop(key, None)


def _next_look(planned: Plan, seconds_to_deadline: float | None) -> Outcome:
    delays = []
    if planned.waiting:
        delays.append(WAITING_INTERVAL)
    if seconds_to_deadline is not None:
        delays.append(max(seconds_to_deadline, SHORTEST_REQUEUE))
    return RequeueAfter(min(delays)) if delays else DONE


def _stamp(moment: datetime) -> str:
    """Write a time as the API does: RFC 3339 with whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
