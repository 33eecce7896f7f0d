"""The status of a Job: finished pods are counted, each one exactly once, and its decided end becomes conditions. Pure.

A pod is counted in three steps, each of which survives a crash before the next one: its uid is written to
`status.uncountedTerminatedPods`, its tracking finalizer is removed, its uid is replaced by an increment of the counter.
Succeeded pods of Indexed Jobs need no uid: the set of completed indexes tells by itself what has been counted.

Conditions are written in the order that API validation demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.job.children import (
    failures_of,
    format_indexes,
    is_indexed,
    is_replaced,
    is_tracked,
    parse_indexes,
    valid_index,
)
from trainmaster.devcluster.controllers.job.policies import match_pod_failure_policy
from trainmaster.devcluster.controllers.objects import condition_of, is_terminal, is_terminating, phase_of
from trainmaster.runtime.jsontree import JsonObject

SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
FAILURE_TARGET = "FailureTarget"
COMPLETE = "Complete"
FAILED = "Failed"
SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decided end of a Job, which it reaches when its last pod is gone."""

    succeeded: bool
    reason: str
    message: str

    @property
    def interim_condition(self) -> str:
        """The condition that says: decided, pods may still be ending."""
        return SUCCESS_CRITERIA_MET if self.succeeded else FAILURE_TARGET

    @property
    def terminal_condition(self) -> str:
        """The condition that says: over."""
        return COMPLETE if self.succeeded else FAILED


def interim_outcome(job: JsonObject) -> Outcome | None:
    """Return the end that was decided earlier; it is never reconsidered."""
    conditions = job.get("status", {}).get("conditions") or ()
    for kind in (SUCCESS_CRITERIA_MET, FAILURE_TARGET):
        condition = condition_of(conditions, kind)
        if condition is not None and condition["status"] == "True":
            return Outcome(kind == SUCCESS_CRITERIA_MET, condition.get("reason", ""), condition.get("message", ""))
    return None


def finished_condition(job: JsonObject) -> JsonObject | None:
    """Return the condition Complete or Failed of a finished Job."""
    for condition in job.get("status", {}).get("conditions") or ():
        if condition["type"] in {COMPLETE, FAILED} and condition["status"] == "True":
            found: JsonObject = condition
            return found
    return None


def set_condition(
    conditions: list[JsonObject], kind: str, status: bool, *, reason: str, message: str, now: datetime
) -> bool:
    """Add or change a condition in a private list; a False one is not added. Tells whether its status changed."""
    text = "True" if status else "False"
    moment = timestamp(now)
    new: JsonObject = {
        "type": kind,
        "status": text,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }
    for position, condition in enumerate(conditions):
        if condition["type"] == kind:
            if condition["status"] == text:
                return False
            conditions[position] = new
            return True
    if status:
        conditions.append(new)
    return status


def set_counter(status: JsonObject, counter: str, value: int) -> None:
    """Write `active`, `succeeded` or `failed`, which the API leaves out while they are zero."""
    if value:
        status[counter] = value
    else:
        status.pop(counter, None)


@dataclass(slots=True)
class PodCounts:
    """What is known about the finished pods of a Job."""

    succeeded: int = 0
    failed: int = 0
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)
    untrack: list[JsonObject] = field(default_factory=list)
    """Pods whose tracking finalizer can go as soon as the counts are stored."""

    @property
    def total_succeeded(self) -> int:
        """Successes, whether or not they are counted for good."""
        return self.succeeded + len(self.uncounted_succeeded)

    @property
    def total_failed(self) -> int:
        """Failures, whether or not they are counted for good."""
        return self.failed + len(self.uncounted_failed)

    @property
    def all_counted(self) -> bool:
        """Nothing waits to be counted."""
        return not self.uncounted_succeeded and not self.uncounted_failed

    def write_to(self, status: JsonObject, *, indexed: bool, per_index: bool) -> None:
        """Put the counts into a Job status."""
        set_counter(status, "succeeded", self.succeeded)
        set_counter(status, "failed", self.failed)
        uncounted = {"succeeded": self.uncounted_succeeded, "failed": self.uncounted_failed}
        status["uncountedTerminatedPods"] = {outcome: uids for outcome, uids in uncounted.items() if uids}
        if indexed and self.completed:
            status["completedIndexes"] = format_indexes(self.completed)
        else:
            status.pop("completedIndexes", None)
        if per_index:
            status["failedIndexes"] = format_indexes(self.failed_indexes)


def replaces_failed_only(job: JsonObject) -> bool:
    """Tell whether a pod is replaced only after it has really ended, not as soon as it is being deleted."""
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def is_failed(job: JsonObject, pod: JsonObject) -> bool:
    """Tell whether the pod counts as a failure.

    A pod that is being deleted does, unless the Job wants to see it end first; one that was never bound to a node will
    not end by itself, so there is nothing to wait for.
    """
    if phase_of(pod) == "Failed":
        return True
    if not is_terminating(pod) or phase_of(pod) == "Succeeded":
        return False
    return not replaces_failed_only(job) or not pod["spec"].get("nodeName")


def count_finished_pods(job: JsonObject, pods: Sequence[JsonObject], *, decided: Outcome | None) -> PodCounts:
    """Count the finished pods of the Job; `decided` is its end if that is known already.

    What is still running when a Job fails has failed with it; what a success leaves over has not.
    """
    failing = decided is not None and not decided.succeeded
    status = job.get("status", {})
    completions = job["spec"].get("completions")
    uncounted = status.get("uncountedTerminatedPods") or {}
    tracked = {pod["metadata"]["uid"]: pod for pod in pods if is_tracked(pod)}
    counts = PodCounts(
        succeeded=status.get("succeeded", 0),
        failed=status.get("failed", 0),
        completed={index for index in parse_indexes(status.get("completedIndexes")) if index < (completions or 0)},
        failed_indexes=parse_indexes(status.get("failedIndexes")),
    )
    for uid in uncounted.get("succeeded") or ():
        if uid in tracked:
            counts.uncounted_succeeded.append(uid)
        else:
            counts.succeeded += 1
    for uid in uncounted.get("failed") or ():
        if uid in tracked:
            counts.uncounted_failed.append(uid)
        else:
            counts.failed += 1
    known = {*counts.uncounted_succeeded, *counts.uncounted_failed}
    for uid, pod in tracked.items():
        if uid in known:
            counts.untrack.append(pod)
        elif phase_of(pod) == "Succeeded":
            _count_success(job, pod, counts)
        elif is_failed(job, pod) or (failing and is_terminating(pod)):
            _count_failure(job, pod, pods, counts, finishing=decided is not None)
        elif is_terminating(job) or (decided is not None and is_terminating(pod)):
            counts.untrack.append(pod)
    if is_indexed(job):
        counts.succeeded = len(counts.completed)
    return counts


def _count_success(job: JsonObject, pod: JsonObject, counts: PodCounts) -> None:
    if not is_indexed(job):
        counts.uncounted_succeeded.append(pod["metadata"]["uid"])
    else:
        index = valid_index(job, pod)
        if index is not None:
            counts.completed.add(index)
    counts.untrack.append(pod)


def _count_failure(
    job: JsonObject, pod: JsonObject, pods: Sequence[JsonObject], counts: PodCounts, *, finishing: bool
) -> None:
    match = match_pod_failure_policy(job, pod) if phase_of(pod) == "Failed" else None
    ignored = match is not None and match.action == "Ignore"
    index = valid_index(job, pod)
    if "backoffLimitPerIndex" in job["spec"] and index is not None:
        if (match is not None and match.action == "FailIndex") or (
            not ignored and failures_of(pod) >= job["spec"]["backoffLimitPerIndex"]
        ):
            counts.failed_indexes.add(index)
        settled = finishing or is_terminating(job) or index in counts.completed or index in counts.failed_indexes
        if not settled and not is_replaced(pod, pods):
            return  # it stays: its replacement takes over the number of failures from it
    if not ignored and (index is not None or not is_indexed(job)):
        counts.uncounted_failed.append(pod["metadata"]["uid"])
    counts.untrack.append(pod)


def count_terminating(pods: Sequence[JsonObject]) -> int:
    """Count the pods that are being deleted and have not ended yet."""
    return sum(1 for pod in pods if is_terminating(pod) and not is_terminal(pod))
