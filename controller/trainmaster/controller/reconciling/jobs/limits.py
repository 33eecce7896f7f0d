"""The limits of a job's run policy. Pure; in seconds, and by the wall clock as the API has it.

Guarantees:
- V1-B1: a deadline is known beforehand, so that the job can be looked at when it has passed.
- V1-B2: `backoffLimit` counts the restarts of containers in place, of all pods that there are, and the replacements of
  failed pods, which the status keeps (`restarts`). A failed pod is counted once, whatever happens between the writes:
  its UID is kept with the count until it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta

from trainmaster.controller.reconciling.jobs.replicas import Replicas, restart_count
from trainmaster.runtime.jobs.constants import ALWAYS, EXIT_CODE, FAILED, ON_FAILURE, SUCCEEDED
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import JsonObject

_RESTARTED: tuple[str, ...] = (ALWAYS, ON_FAILURE, EXIT_CODE)


def backoff_limit_reached(job: Job, replicas: Iterable[Replicas]) -> bool:
    """Tell whether a job has been restarted as often as its `backoffLimit` allows, what is to be replaced included."""
    limit = job.run_policy.backoff_limit
    if limit is None:
        return False
    in_place = replacements = 0
    for each in replicas:
        if limit == 0 and each.status.failed:
            return True
        replacements += replaced(job, each.replica_type) + sum(1 for _ in _uncounted(job, each))
        if job.replica_specs[each.replica_type].restart_policy in _RESTARTED:
            # Those of a pod that is being replaced have been added to its replacement.
            counted = _counted(job, each.replica_type)
            in_place += sum(restart_count(pod) for pod in each.pods if pod["metadata"]["uid"] not in counted)
    return in_place >= max(limit, 1) or in_place + replacements > limit


def replaced(job: Job, replica_type: str) -> int:
    """Return how often pods of a type were replaced, and restarted before that, as the status has it."""
    return _status_of(job, replica_type).get("restarts") or 0


def count_restarts(job: Job, replicas: Replicas, there: AbstractSet[str]) -> JsonObject:
    """Return the fields of a type's status that count replacements; empty for a job without `backoffLimit`.

    Args:
        job: The job.
        replicas: The replicas of the type.
        there: The UIDs of all pods that the job controls.
    """
    if job.run_policy.backoff_limit is None:
        return {}
    new = list(_uncounted(job, replicas))
    count = replaced(job, replicas.replica_type) + sum(1 + restart_count(pod) for pod in new)
    counted = [uid for uid in _counted(job, replicas.replica_type) if uid in there]
    counted += [pod["metadata"]["uid"] for pod in new]
    fields: JsonObject = {}
    if count:
        fields["restarts"] = count
    if counted:
        fields["restartedPodUIDs"] = counted
    return fields


def seconds_to_deadline(job: Job, now: datetime) -> float | None:
    """Return the seconds until a job has been active for too long; None if it never is."""
    limit, start = job.run_policy.active_deadline_seconds, job.status.get("startTime")
    if limit is None or not start:
        return None
    return _seconds_until(start, limit, now)


def seconds_to_expiry(job: Job, now: datetime) -> float | None:
    """Return the seconds until a finished job has outlived its time to live; None if it never does.

    A job that the original failed without a `completionTime` (V1-B6) ended when its condition says.
    """
    ttl = job.run_policy.ttl_seconds_after_finished
    if ttl is None:
        return None
    ended = job.status.get("completionTime")
    if not ended:
        conditions = (job.condition(each) for each in (SUCCEEDED, FAILED) if job.is_true(each))
        ended = next((each.get("lastTransitionTime") for each in conditions if each is not None), None)
    return _seconds_until(ended, ttl, now) if ended else None


def _seconds_until(start: str, seconds: int, now: datetime) -> float | None:
    try:
        return (datetime.fromisoformat(start) + timedelta(seconds=seconds) - now).total_seconds()
    except (OverflowError, TypeError, ValueError):
        return None  # further away than dates go, or no date at all


def _uncounted(job: Job, replicas: Replicas) -> Iterable[JsonObject]:
    counted = set(_counted(job, replicas.replica_type))
    return (pod for pod in replicas.restarts if pod["metadata"]["uid"] not in counted)


def _counted(job: Job, replica_type: str) -> list[str]:
    return _status_of(job, replica_type).get("restartedPodUIDs") or []


def _status_of(job: Job, replica_type: str) -> JsonObject:
    status: JsonObject = (job.status.get("replicaStatuses") or {}).get(replica_type) or {}
    return status
