"""Which pods a running Job needs more, which it has too many, and when a failed one may be replaced. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from trainmaster.devcluster.controllers.control_loop import ExponentialBackoff
from trainmaster.devcluster.controllers.job.children import (
    PodToCreate,
    failures_of,
    finish_time,
    ignored_failures_of,
    is_indexed,
    total_failures_of,
    valid_index,
)
from trainmaster.devcluster.controllers.job.policies import match_pod_failure_policy
from trainmaster.devcluster.controllers.job.status import PodCounts, is_failed, replaces_failed_only
from trainmaster.devcluster.controllers.objects import is_active, is_ready, is_terminal, is_terminating, phase_of
from trainmaster.runtime.jsontree import JsonObject


@dataclass(slots=True)
class PodChanges:
    """Changes to the set of pods of a Job."""

    create: list[PodToCreate] = field(default_factory=list)
    delete: list[JsonObject] = field(default_factory=list)
    requeue_after: float | None = None
    """Seconds after which more pods may be created."""

    def requeue(self, seconds: float) -> None:
        """Keep the shortest pause."""
        self.requeue_after = seconds if self.requeue_after is None else min(self.requeue_after, seconds)


def plan_pod_changes(
    job: JsonObject, pods: Sequence[JsonObject], counts: PodCounts, *, backoff: ExponentialBackoff, now: datetime
) -> PodChanges:
    """Compare the pods of a Job that is neither suspended nor ending with those that it wants."""
    changes = PodChanges()
    active = [pod for pod in pods if is_active(pod)]
    if is_indexed(job):
        changes.delete = _surplus_of_indexes(job, active)
        removed = {pod["metadata"]["uid"] for pod in changes.delete}
        active = [pod for pod in active if pod["metadata"]["uid"] not in removed]
    terminating = _still_terminating(job, pods)
    missing = _wanted_active(job, active, counts) - len(active)
    if missing < 0:
        # The least advanced go first: not ready ones, then high indexes.
        by_progress = sorted(active, key=lambda pod: (is_ready(pod), -(valid_index(job, pod) or 0)))
        changes.delete += by_progress[:-missing]
        return changes
    missing -= len(terminating)
    if missing <= 0:
        return changes
    if "backoffLimitPerIndex" in job["spec"]:
        _replace_by_index(job, pods, counts, changes, missing=missing, backoff=backoff, now=now)
        return changes
    pause = _pause(job, pods, backoff=backoff, now=now)
    if pause > 0:
        changes.requeue(pause)
    elif is_indexed(job):
        taken = {valid_index(job, pod) for pod in [*active, *terminating]}
        changes.create = [PodToCreate(index) for index in islice(_pending_indexes(job, counts, taken), missing)]
    else:
        changes.create = [PodToCreate()] * missing
    return changes


def _wanted_active(job: JsonObject, active: Sequence[JsonObject], counts: PodCounts) -> int:
    parallelism: int = job["spec"].get("parallelism", 1)
    completions: int | None = job["spec"].get("completions")
    if completions is None:
        return len(active) if counts.total_succeeded else parallelism
    return max(
        0, min(parallelism, completions - counts.total_succeeded - len(counts.failed_indexes - counts.completed))
    )


def _still_terminating(job: JsonObject, pods: Sequence[JsonObject]) -> list[JsonObject]:
    """Return the pods that are being deleted and keep their place until they have ended."""
    if not replaces_failed_only(job):
        return []
    return [pod for pod in pods if is_terminating(pod) and not is_terminal(pod) and not is_failed(job, pod)]


def _surplus_of_indexes(job: JsonObject, active: Sequence[JsonObject]) -> list[JsonObject]:
    """Return pods without a valid index, and all but the most advanced pod of each index."""
    surplus, seen = [], set()
    for pod in sorted(active, key=lambda pod: (not is_ready(pod), phase_of(pod) != "Running")):
        index = valid_index(job, pod)
        if index is None or index in seen:
            surplus.append(pod)
        seen.add(index)
    return surplus


def _pending_indexes(job: JsonObject, counts: PodCounts, taken: set[int | None]) -> Iterator[int]:
    """Yield the indexes that still have to run, lowest first."""
    for index in range(job["spec"].get("completions", 0)):
        if index not in taken and index not in counts.completed and index not in counts.failed_indexes:
            yield index


def _pause(job: JsonObject, pods: Sequence[JsonObject], *, backoff: ExponentialBackoff, now: datetime) -> float:
    """Return how long to wait before replacing a failed pod.

    Computed from the pods that ended, which stay until the Job goes: a restart loses nothing.
    """
    ended = [pod for pod in pods if is_terminal(pod) or is_failed(job, pod)]
    last_success = max((finish_time(pod) for pod in ended if phase_of(pod) == "Succeeded"), default=None)
    failures = [
        finish_time(pod)
        for pod in ended
        if phase_of(pod) != "Succeeded" and (last_success is None or finish_time(pod) > last_success)
    ]
    return _remaining(len(failures), max(failures), backoff=backoff, now=now) if failures else 0.0


def _remaining(failures: int, last: datetime, *, backoff: ExponentialBackoff, now: datetime) -> float:
    """Return how much is left of the pause after the last of some failures."""
    return backoff.after(failures) - (now - last).total_seconds()


def _replace_by_index(
    job: JsonObject,
    pods: Sequence[JsonObject],
    counts: PodCounts,
    changes: PodChanges,
    *,
    missing: int,
    backoff: ExponentialBackoff,
    now: datetime,
) -> None:
    """Plan pods for the lowest pending indexes; each index has its own count of failures and its own pause."""
    taken: set[int | None] = {valid_index(job, pod) for pod in pods if is_active(pod)}
    taken |= {valid_index(job, pod) for pod in _still_terminating(job, pods)}
    latest: dict[int | None, JsonObject] = {}
    for pod in sorted(pods, key=total_failures_of):
        if is_failed(job, pod):
            latest[valid_index(job, pod)] = pod
    for index in _pending_indexes(job, counts, taken):
        if len(changes.create) == missing:
            return
        last = latest.get(index)
        if last is None:
            changes.create.append(PodToCreate(index, failures=0))
            continue
        pause = _remaining(total_failures_of(last) + 1, finish_time(last), backoff=backoff, now=now)
        if pause > 0:
            changes.requeue(pause)
            continue
        match = match_pod_failure_policy(job, last) if phase_of(last) == "Failed" else None
        ignored = match is not None and match.action == "Ignore"
        changes.create.append(
            PodToCreate(index, failures_of(last) + (not ignored), ignored_failures_of(last) + ignored)
        )
