"""What is decided of a TrainJob, and the status that follows from that and from what was observed and tried. Pure.

Guarantees:
- F-4: conditions keep the time of their last flip, and nothing changes that need not.
- U1: of the conditions that are true the one that matters most comes first, because the State column shows the first;
  the others keep their order. That a job which has ended shall be suspended is noted, but not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from trainmaster.controller.conditions import (
    BLOCKED,
    CONTAINER_FAILED,
    PLUGIN_SKIPPED,
    WAITING,
    find_condition,
    is_true,
    remove_condition,
    set_condition,
    stored_status,
)
from trainmaster.controller.container_failures import restarts_of
from trainmaster.controller.diagnosis.first_failures import FirstFailures
from trainmaster.controller.job_fields import PRECEDENCE, number
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.trainjobs.observe import Observed
from trainmaster.controller.reconciling.writes import Decision
from trainmaster.controller.resilience.goodput import account, facts_of, seconds_of, wanted_pods
from trainmaster.controller.resilience.ledger import Verdict
from trainmaster.runtime.api.constants import (
    COMPLETE,
    DEADLINE_EXCEEDED_MESSAGE,
    DEADLINE_EXCEEDED_REASON,
    FAILED,
    RESUMED_MESSAGE,
    RESUMED_REASON,
    RUNTIME_NOT_SUPPORTED_REASON,
    SUSPENDED,
    SUSPENDED_MESSAGE,
    SUSPENDED_REASON,
)
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import PluginFailed
from trainmaster.runtime.framework.interface import StatusReport
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_DIGEST: Final = "runtimeSnapshotDigest"


@dataclass(slots=True, kw_only=True)
class Plan(Decision):
    """What a reconcile of a TrainJob is to do."""

    observed: Observed = field(repr=False)
    deadline_exceeded: bool = False
    unsupported_runtime: str | None = None
    """The kind and group that `runtimeRef` names, if nobody serves it."""

    workload_without_jobs: JsonObject | None = None
    """The JobSet as observed, if it lacks Jobs and something about it may be the reason."""

    may_lack_jobs: bool = False
    """Whether there is something of that kind about the JobSet, also if it was not observed yet."""

    lasts: bool = False
    """Whether it stays the same while the workload runs: there is nothing else, and that one is left alone then."""

    time_to_live: int | None = None
    """How many seconds the TrainJob is kept after its end; None: for ever, or nobody knows yet."""

    snapshot_digest: str = ""
    """Of the snapshot from which it was planned; it is written together with what else changes."""

    skipped: Sequence[PluginFailed] | None = None
    """Failures of plugins without which it was planned; None: it was not resolved."""

    skipped_condition: JsonObject | None = None
    """The condition that tells of these."""

    def status(self, problem: Problem | None, *, now: str) -> JsonObject:
        """Return the status that follows, given what stands in the way."""
        observed = self.observed
        job, status = observed.job, observed.raw.get("status") or {}
        report, verdict, (first_failures, waiting, _) = observed.report, observed.verdict, observed.findings
        snapshot_digest = self.snapshot_digest or observed.snapshot_digest
        following: JsonObject = copy_tree(status)
        conditions: list[JsonObject] = following.get("conditions") or []
        _set_suspended(job, conditions, now=now)
        if report is not None:
            cause = first_failures.cause if first_failures is not None else None
            _set_reported(report, following, conditions, now=now, cause=cause)
        if first_failures is not None:
            _complete_end(job, conditions, first_failures.cause, now=now)
            _set_or_remove(conditions, CONTAINER_FAILED, first_failures.condition, now=now)
        if not finished(conditions):
            if self.deadline_exceeded:
                _fail(conditions, DEADLINE_EXCEEDED_REASON, DEADLINE_EXCEEDED_MESSAGE, now=now)
            elif verdict is not None and verdict.failure is not None:
                _fail(conditions, *verdict.failure, now=now)
            elif self.unsupported_runtime:
                message = f"unsupported runtime: {self.unsupported_runtime}"
                _fail(conditions, RUNTIME_NOT_SUPPORTED_REASON, message, now=now)
        blocked = problem.condition() if problem is not None and not finished(conditions) else None
        _set_or_remove(conditions, BLOCKED, blocked, now=now)
        _set_or_remove(conditions, WAITING, None if blocked or finished(conditions) else waiting, now=now)
        _set_or_remove(conditions, PLUGIN_SKIPPED, self.skipped_condition, now=now)
        _lead_with_what_matters(conditions)
        _put(following, "conditions", conditions)
        if verdict is not None and ("resilience" in status or following != status):
            # By itself it is begun with the next write.
            following["resilience"] = {**verdict.status, "goodput": _goodput(observed, verdict, following, now)}
        if following != status and (restarts := _restarts(status, first_failures, verdict)):
            # By itself it is not worth a write: where it is not stored that had no end.
            following["restarts"] = restarts
        if finished(conditions):
            following.pop(_DIGEST, None)  # nothing is built any more
        elif snapshot_digest and (following != status or status.get(_DIGEST, snapshot_digest) != snapshot_digest):
            following[_DIGEST] = snapshot_digest
        return following


def _goodput(observed: Observed, verdict: Verdict, following: JsonObject, now: str) -> JsonObject:
    """Return what the time of a TrainJob was spent on, by the status that follows, so that its end counts."""
    job = {**observed.raw, "status": following}
    wanted = wanted_pods(job, observed.jobset or {})
    stored = (stored_status(observed.raw).get("resilience") or {}).get("goodput") or {}
    return account(stored, facts_of(job, attempts=verdict.times, wanted=wanted, now=seconds_of(now) or 0))


def only_counters(old: JsonObject, new: JsonObject) -> bool:
    """Tell whether two statuses differ in nothing but how many pods of each job do what."""
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    return changed - {_DIGEST} == {"jobsStatus"}


def _restarts(status: JsonObject, failures: FirstFailures | None, verdict: Verdict | None) -> int:
    """Return how often the training was started again; after the last failure as well, if that was overcome."""
    if verdict is not None:
        return verdict.restarts
    stored = number(status.get("restarts"))
    if failures is None or not failures.told:
        return stored
    told = restarts_of((), "\n".join(each.text for each in failures.told))
    return max(stored, told + (not failures.is_open))


def _set_suspended(job: TrainJob, conditions: list[JsonObject], *, now: str) -> None:
    if job.spec.suspend:
        condition = {"status": "True", "reason": SUSPENDED_REASON, "message": SUSPENDED_MESSAGE}
        set_condition(conditions, {"type": SUSPENDED, **condition}, now=now)
    elif is_true(conditions, SUSPENDED):
        condition = {"status": "False", "reason": RESUMED_REASON, "message": RESUMED_MESSAGE}
        set_condition(conditions, {"type": SUSPENDED, **condition}, now=now)


def _set_reported(
    report: StatusReport, status: JsonObject, conditions: list[JsonObject], *, now: str, cause: str | None
) -> None:
    if report.jobs_status is not None:
        _put(status, "jobsStatus", report.jobs_status)
    # The first end counts: a job that exceeded its deadline does not become complete afterwards, nor the reverse.
    if not finished(conditions):
        for condition in report.conditions:
            set_condition(conditions, _with_cause(condition, cause), now=now)


def _complete_end(job: TrainJob, conditions: list[JsonObject], cause: str | None, *, now: str) -> None:
    """Say why a workload has failed if that is known only after its end was told."""
    failed = find_condition(conditions, FAILED)
    if job.is_finished and failed is not None and cause and cause not in str(failed.get("message")):
        set_condition(conditions, _with_cause(failed, cause), now=now)


def _with_cause(condition: JsonObject, cause: str | None) -> JsonObject:
    """Say why a workload has failed, after its own words, for whoever reads those."""
    if not cause or condition["type"] != FAILED:
        return condition
    return {**condition, "message": "; ".join(filter(None, (condition.get("message"), cause)))}


def _set_or_remove(
    conditions: list[JsonObject], condition_type: str, condition: JsonObject | None, *, now: str
) -> None:
    if condition is not None:
        set_condition(conditions, condition, now=now)
    else:
        remove_condition(conditions, condition_type)


def _fail(conditions: list[JsonObject], reason: str, message: str, *, now: str) -> None:
    set_condition(conditions, {"type": FAILED, "status": "True", "reason": reason, "message": message}, now=now)


def finished(conditions: list[JsonObject]) -> bool:
    """Tell whether one of these conditions says that the job has ended."""
    return is_true(conditions, COMPLETE) or is_true(conditions, FAILED)


def _lead_with_what_matters(conditions: list[JsonObject]) -> None:
    """Move one condition to the front, if another one that matters less would be shown instead of it."""
    holding = [condition for condition in conditions if condition.get("status") == "True"]
    if len(holding) > 1 and (leading := min(holding, key=_rank)) is not holding[0]:
        conditions.remove(leading)
        conditions.insert(0, leading)


def _rank(condition: JsonObject) -> int:
    kind = condition.get("type")
    return PRECEDENCE.index(kind) if kind in PRECEDENCE else len(PRECEDENCE)


def _put(status: JsonObject, field: str, value: list[JsonObject]) -> None:
    if value:
        status[field] = value
    else:
        status.pop(field, None)
