"""Counting finished pods: each one exactly once, also across crashes.

A pod is counted in three steps, each of which survives a crash before the next one: its uid is written to
`status.uncountedTerminatedPods`, its tracking finalizer is removed, its uid is replaced by an increment of the counter.
Succeeded pods of Indexed Jobs need no uid: the set of completed indexes tells by itself what has been counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.devcluster.controllers.job.indexes import format_indexes, parse_indexes
from trainmaster.devcluster.controllers.job.pods import (
    failures_of,
    ignored_failures_of,
    index_of,
    is_terminal,
    is_tracked,
    phase_of,
)
from trainmaster.devcluster.controllers.job.policies import match_failure
from trainmaster.devcluster.controllers.objects import is_terminating
from trainmaster.runtime.jsontree import JsonObject


@dataclass(slots=True)
class Tally:
    """What is known about the finished pods of a Job."""

    succeeded: int = 0
    failed: int = 0
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)
    release: list[JsonObject] = field(default_factory=list)
    """Pods whose tracking finalizer can go as soon as the tally is stored."""

    @property
    def all_succeeded(self) -> int:
        """Successes, whether or not they are counted for good."""
        return self.succeeded + len(self.uncounted_succeeded)

    @property
    def all_failed(self) -> int:
        """Failures, whether or not they are counted for good."""
        return self.failed + len(self.uncounted_failed)

    @property
    def is_settled(self) -> bool:
        """Nothing waits to be counted."""
        return not self.uncounted_succeeded and not self.uncounted_failed

    def write_to(self, status: JsonObject, *, indexed: bool, per_index: bool) -> None:
        """Put the tally into a Job status."""
        status["succeeded"] = self.succeeded
        status["failed"] = self.failed
        uncounted = {"succeeded": self.uncounted_succeeded, "failed": self.uncounted_failed}
        status["uncountedTerminatedPods"] = {outcome: uids for outcome, uids in uncounted.items() if uids}
        if indexed and self.completed:
            status["completedIndexes"] = format_indexes(self.completed)
        if per_index:
            status["failedIndexes"] = format_indexes(self.failed_indexes)


def is_indexed(job: JsonObject) -> bool:
    """Tell whether each pod of the Job has a completion index."""
    return bool(job["spec"].get("completionMode") == "Indexed")


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


def count(job: JsonObject, pods: Sequence[JsonObject], *, finishing: bool) -> Tally:
    """Count the finished pods of the Job; `finishing` says that its end is already decided."""
    status = job.get("status", {})
    completions = job["spec"].get("completions")
    uncounted = status.get("uncountedTerminatedPods") or {}
    tracked = {pod["metadata"]["uid"]: pod for pod in pods if is_tracked(pod)}
    tally = Tally(
        succeeded=status.get("succeeded", 0),
        failed=status.get("failed", 0),
        completed={index for index in parse_indexes(status.get("completedIndexes")) if index < (completions or 0)},
        failed_indexes=parse_indexes(status.get("failedIndexes")),
    )
    for uid in uncounted.get("succeeded") or ():
        if uid in tracked:
            tally.uncounted_succeeded.append(uid)
        else:
            tally.succeeded += 1
    for uid in uncounted.get("failed") or ():
        if uid in tracked:
            tally.uncounted_failed.append(uid)
        else:
            tally.failed += 1
    known = {*tally.uncounted_succeeded, *tally.uncounted_failed}
    for uid, pod in tracked.items():
        if uid in known:
            tally.release.append(pod)
        elif phase_of(pod) == "Succeeded":
            _count_success(job, pod, tally)
        elif is_failed(job, pod) or (finishing and is_terminating(pod)):
            _count_failure(job, pod, pods, tally, finishing=finishing)
        elif is_terminating(job):
            tally.release.append(pod)
    if is_indexed(job):
        tally.succeeded = len(tally.completed)
    return tally


def _count_success(job: JsonObject, pod: JsonObject, tally: Tally) -> None:
    if not is_indexed(job):
        tally.uncounted_succeeded.append(pod["metadata"]["uid"])
    else:
        index = valid_index(job, pod)
        if index is not None:
            tally.completed.add(index)
    tally.release.append(pod)


def _count_failure(
    job: JsonObject, pod: JsonObject, pods: Sequence[JsonObject], tally: Tally, *, finishing: bool
) -> None:
    match = match_failure(job, pod) if phase_of(pod) == "Failed" else None
    ignored = match is not None and match.action == "Ignore"
    index = valid_index(job, pod)
    if "backoffLimitPerIndex" in job["spec"] and index is not None:
        if (match is not None and match.action == "FailIndex") or (
            not ignored and failures_of(pod) >= job["spec"]["backoffLimitPerIndex"]
        ):
            tally.failed_indexes.add(index)
        settled = finishing or is_terminating(job) or index in tally.completed or index in tally.failed_indexes
        if not settled and not _is_replaced(pod, pods):
            return  # it stays: its replacement takes over the number of failures from it
    if not ignored and (index is not None or not is_indexed(job)):
        tally.uncounted_failed.append(pod["metadata"]["uid"])
    tally.release.append(pod)


def valid_index(job: JsonObject, pod: JsonObject) -> int | None:
    """Return the completion index of the pod if the Job has such an index."""
    index = index_of(pod)
    return index if index is not None and index < (job["spec"].get("completions") or 0) else None


def _is_replaced(pod: JsonObject, pods: Sequence[JsonObject]) -> bool:
    """Tell whether a pod with a higher number of failures exists for the same index."""
    return any(index_of(other) == index_of(pod) and predecessors_of(other) > predecessors_of(pod) for other in pods)


def predecessors_of(pod: JsonObject) -> int:
    """Return how many failed pods of the same index came before this one."""
    return failures_of(pod) + ignored_failures_of(pod)


def count_terminating(pods: Sequence[JsonObject]) -> int:
    """Count the pods that are being deleted and have not ended yet."""
    return sum(1 for pod in pods if is_terminating(pod) and not is_terminal(pod))
