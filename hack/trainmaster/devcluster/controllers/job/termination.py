"""Whether a Job ends now, and why. The first rule that applies decides; the order is that of the Job API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from trainmaster.devcluster.controllers.job.children import is_indexed, restarts_of
from trainmaster.devcluster.controllers.job.policies import match_pod_failure_policy, match_success_policy
from trainmaster.devcluster.controllers.job.status import Outcome, PodCounts, interim_outcome
from trainmaster.devcluster.controllers.objects import is_active, is_terminal, parse_time, phase_of
from trainmaster.runtime.jsontree import JsonObject

_BACKOFF = Outcome(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
_DEADLINE = Outcome(False, "DeadlineExceeded", "Job was active longer than specified deadline")
_FAILED_INDEXES = Outcome(False, "FailedIndexes", "Job has failed indexes")
_MAX_FAILED_INDEXES = Outcome(
    False, "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
)
_COMPLETIONS = Outcome(True, "CompletionsReached", "Reached expected number of succeeded pods")

_DEFAULT_BACKOFF_LIMIT = 6


def decide_outcome(job: JsonObject, pods: Sequence[JsonObject], counts: PodCounts, *, now: datetime) -> Outcome | None:
    """Return how the Job ends, None if it goes on."""
    return (
        interim_outcome(job)
        or _failed_by_policy(job, pods)
        or _exceeded_backoff(job, pods, counts)
        or _exceeded_deadline(job, now)
        or _failed_by_index(job, counts)
        or _succeeded_by_policy(job, counts)
        or _completed(job, pods, counts)
    )


def seconds_to_deadline(job: JsonObject, now: datetime) -> float | None:
    """Return how long the Job may still run; None if it may for ever, or does not run."""
    deadline = job["spec"].get("activeDeadlineSeconds")
    start = job.get("status", {}).get("startTime")
    if deadline is None or start is None or job["spec"].get("suspend"):
        return None
    return (parse_time(start) + timedelta(seconds=deadline) - now).total_seconds()


def _failed_by_policy(job: JsonObject, pods: Sequence[JsonObject]) -> Outcome | None:
    if "podFailurePolicy" not in job["spec"]:
        return None
    for pod in pods:
        match = match_pod_failure_policy(job, pod) if phase_of(pod) == "Failed" else None
        if match is not None and match.action == "FailJob":
            return Outcome(False, "PodFailurePolicy", match.message)
    return None


def _exceeded_backoff(job: JsonObject, pods: Sequence[JsonObject], counts: PodCounts) -> Outcome | None:
    if "backoffLimitPerIndex" in job["spec"] and "backoffLimit" not in job["spec"]:
        return None
    limit = job["spec"].get("backoffLimit", _DEFAULT_BACKOFF_LIMIT)
    if counts.total_failed > limit:
        return _BACKOFF
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return None
    # Containers that restart in place never make their pod fail, so their restarts are what counts.
    restarts = sum(restarts_of(pod) for pod in pods if not is_terminal(pod))
    return _BACKOFF if restarts and restarts >= limit else None


def _exceeded_deadline(job: JsonObject, now: datetime) -> Outcome | None:
    left = seconds_to_deadline(job, now)
    return _DEADLINE if left is not None and left <= 0 else None


def _failed_by_index(job: JsonObject, counts: PodCounts) -> Outcome | None:
    if "backoffLimitPerIndex" not in job["spec"] or not counts.failed_indexes:
        return None
    limit = job["spec"].get("maxFailedIndexes")
    if limit is not None and len(counts.failed_indexes) > limit:
        return _MAX_FAILED_INDEXES
    if len(counts.failed_indexes | counts.completed) >= job["spec"].get("completions", 0):
        return _FAILED_INDEXES
    return None


def _succeeded_by_policy(job: JsonObject, counts: PodCounts) -> Outcome | None:
    rule = match_success_policy(job, counts.completed)
    return None if rule is None else Outcome(True, "SuccessPolicy", f"Matched rules at index {rule}")


def _completed(job: JsonObject, pods: Sequence[JsonObject], counts: PodCounts) -> Outcome | None:
    wanted = job["spec"].get("completions")
    active = any(is_active(pod) for pod in pods)
    if wanted is None:
        # A work queue is empty when one pod says so by its success; the others finish what they have begun.
        return _COMPLETIONS if counts.total_succeeded and not active else None
    reached = len(counts.completed) if is_indexed(job) else counts.total_succeeded
    return _COMPLETIONS if reached >= wanted and not active else None
