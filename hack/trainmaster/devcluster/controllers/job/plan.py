"""What to do next about a Job, from what is there. Pure; the controller carries it out.

Every plan leaves the Job in a state from which the next one follows, so a crash between any two writes costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.control_loop import ExponentialBackoff
from trainmaster.devcluster.controllers.job.children import PodToCreate, is_indexed, is_tracked
from trainmaster.devcluster.controllers.job.replicas import plan_pod_changes
from trainmaster.devcluster.controllers.job.status import (
    SUSPENDED,
    count_finished_pods,
    count_terminating,
    finished_condition,
    interim_outcome,
    set_condition,
    set_counter,
)
from trainmaster.devcluster.controllers.job.termination import decide_outcome, seconds_to_deadline
from trainmaster.devcluster.controllers.objects import condition_of, is_active, is_ready, is_terminating
from trainmaster.devcluster.events import Note
from trainmaster.runtime.jsontree import JsonObject, copy_tree


@dataclass(slots=True)
class JobPlan:
    """What to do, in this order: create, delete, write the status, untrack."""

    status: JsonObject
    """The status as it is when everything else has succeeded."""
    create: list[PodToCreate] = field(default_factory=list)
    delete_uncounted: list[JsonObject] = field(default_factory=list)
    """Active pods that are in the way, or that a success leaves over: deleted without being counted."""
    delete: list[JsonObject] = field(default_factory=list)
    """Active pods of a Job that fails: deleted and then counted."""
    untrack: list[JsonObject] = field(default_factory=list)
    """Pods that need not be tracked any more once the status is written."""
    notes: list[Note] = field(default_factory=list)
    requeue_after: float | None = None


def plan_job(job: JsonObject, pods: Sequence[JsonObject], *, backoff: ExponentialBackoff, now: datetime) -> JobPlan:
    """Plan what to do about a Job that belongs to this controller."""
    status: JsonObject = copy_tree(job.get("status", {}))
    if finished_condition(job) is not None:
        return JobPlan(status=status, untrack=[pod for pod in pods if is_tracked(pod)])
    suspended = bool(job["spec"].get("suspend"))
    if not suspended and "startTime" not in status:
        status["startTime"] = timestamp(now)
        job = {**job, "status": status}
    counts = count_finished_pods(job, pods, decided=interim_outcome(job))
    outcome = decide_outcome(job, pods, counts, now=now)
    plan = JobPlan(status=status, untrack=counts.untrack)
    active = [pod for pod in pods if is_active(pod)]
    if outcome is not None and not outcome.succeeded:
        plan.delete = active
    elif outcome is not None or suspended:
        plan.delete_uncounted = active
    elif not is_terminating(job):
        changes = plan_pod_changes(job, pods, counts, backoff=backoff, now=now)
        plan.create, plan.delete_uncounted, plan.requeue_after = changes.create, changes.delete, changes.requeue_after

    counts.write_to(status, indexed=is_indexed(job), per_index="backoffLimitPerIndex" in job["spec"])
    gone = {pod["metadata"]["uid"] for pod in [*plan.delete_uncounted, *plan.delete]}
    set_counter(status, "active", len(active) - len(gone) + len(plan.create))
    status["ready"] = sum(1 for pod in active if is_ready(pod) and pod["metadata"]["uid"] not in gone)
    status["terminating"] = count_terminating(pods)
    conditions = status.setdefault("conditions", [])
    if outcome is None:
        _set_suspended(plan, conditions, suspended=suspended, now=now)
    else:
        set_condition(
            conditions, outcome.interim_condition, True, reason=outcome.reason, message=outcome.message, now=now
        )
        if not active and not status["terminating"] and counts.all_counted:
            set_condition(
                conditions, outcome.terminal_condition, True, reason=outcome.reason, message=outcome.message, now=now
            )
            status.setdefault("startTime", timestamp(now))  # a finished Job has one, even if it ended while suspended
            if outcome.succeeded:
                status["completionTime"] = timestamp(now)
                plan.notes.append(Note("Normal", "Completed", "Job completed"))
            else:
                plan.notes.append(Note("Warning", outcome.reason, outcome.message))
    if not conditions:
        del status["conditions"]
    left = seconds_to_deadline(job, now) if outcome is None else None
    if left is not None:
        plan.requeue_after = left if plan.requeue_after is None else min(left, plan.requeue_after)
    return plan


def _set_suspended(plan: JobPlan, conditions: list[JsonObject], *, suspended: bool, now: datetime) -> None:
    if suspended:
        plan.status.pop("startTime", None)
        reason, message = "JobSuspended", "Job suspended"
    else:
        reason, message = "JobResumed", "Job resumed"
    was_suspended = (condition_of(conditions, SUSPENDED) or {}).get("status") == "True"
    if set_condition(conditions, SUSPENDED, suspended, reason=reason, message=message, now=now):
        plan.notes.append(Note("Normal", "Suspended" if suspended else "Resumed", message))
    if was_suspended and not suspended:
        plan.status["startTime"] = timestamp(now)  # the deadline counts from the resumption
