"""One step of a Job: from what is there to what should be done next. Pure; the controller carries it out.

Every step leaves the Job in a state from which the next one follows, so a crash between any two writes costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.job.conditions import (
    SUSPENDED,
    announced_outcome,
    finished_condition,
    set_condition,
)
from trainmaster.devcluster.controllers.job.pods import NewPod, is_active, is_ready, is_tracked
from trainmaster.devcluster.controllers.job.replicas import staff
from trainmaster.devcluster.controllers.job.status import count, count_terminating, is_indexed
from trainmaster.devcluster.controllers.job.termination import decide_end, seconds_to_deadline
from trainmaster.devcluster.controllers.objects import condition_of, is_terminating
from trainmaster.devcluster.controllers.settings import ControllerSettings
from trainmaster.devcluster.events import Note
from trainmaster.runtime.jsontree import JsonObject, copy_tree


@dataclass(slots=True)
class Step:
    """What to do, in this order: create, discard, stop, write the status, release."""

    status: JsonObject
    """The status as it is when everything else has succeeded."""
    create: list[NewPod] = field(default_factory=list)
    discard: list[JsonObject] = field(default_factory=list)
    """Active pods that are in the way: deleted without being counted."""
    stop: list[JsonObject] = field(default_factory=list)
    """Active pods of a Job that ends: deleted and then counted."""
    release: list[JsonObject] = field(default_factory=list)
    """Pods that need not be tracked any more once the status is written."""
    notes: list[Note] = field(default_factory=list)
    requeue_after: float | None = None


def decide(job: JsonObject, pods: Sequence[JsonObject], *, settings: ControllerSettings, now: datetime) -> Step:
    """Decide the next step of a Job that belongs to this controller."""
    status: JsonObject = copy_tree(job.get("status", {}))
    if finished_condition(job) is not None:
        return Step(status=status, release=[pod for pod in pods if is_tracked(pod)])
    suspended = bool(job["spec"].get("suspend"))
    if not suspended and "startTime" not in status:
        status["startTime"] = timestamp(now)
        job = {**job, "status": status}
    tally = count(job, pods, finishing=announced_outcome(job) is not None)
    outcome = decide_end(job, pods, tally, now=now)
    step = Step(status=status, release=tally.release)
    active = [pod for pod in pods if is_active(pod)]
    if outcome is not None:
        step.stop = active
    elif suspended:
        step.discard = active
    elif not is_terminating(job):
        staffing = staff(job, pods, tally, settings=settings, now=now)
        step.create, step.discard, step.requeue_after = staffing.create, staffing.remove, staffing.wait

    tally.write_to(status, indexed=is_indexed(job), per_index="backoffLimitPerIndex" in job["spec"])
    gone = {pod["metadata"]["uid"] for pod in [*step.discard, *step.stop]}
    status["active"] = len(active) - len(gone) + len(step.create)
    status["ready"] = sum(1 for pod in active if is_ready(pod) and pod["metadata"]["uid"] not in gone)
    status["terminating"] = count_terminating(pods)
    conditions = status.setdefault("conditions", [])
    if outcome is None:
        _note_suspension(step, conditions, suspended=suspended, now=now)
    else:
        set_condition(conditions, outcome.announcement, True, reason=outcome.reason, message=outcome.message, now=now)
        if not active and not status["terminating"] and tally.is_settled:
            set_condition(conditions, outcome.final, True, reason=outcome.reason, message=outcome.message, now=now)
            status.setdefault("startTime", timestamp(now))  # a finished Job has one, even if it ended while suspended
            if outcome.succeeded:
                status["completionTime"] = timestamp(now)
                step.notes.append(Note("Normal", "Completed", "Job completed"))
            else:
                step.notes.append(Note("Warning", outcome.reason, outcome.message))
    if not conditions:
        del status["conditions"]
    left = seconds_to_deadline(job, now) if outcome is None else None
    if left is not None:
        step.requeue_after = left if step.requeue_after is None else min(left, step.requeue_after)
    return step


def _note_suspension(step: Step, conditions: list[JsonObject], *, suspended: bool, now: datetime) -> None:
    if suspended:
        step.status.pop("startTime", None)
        reason, message = "JobSuspended", "Job suspended"
    else:
        reason, message = "JobResumed", "Job resumed"
    was_suspended = (condition_of(conditions, SUSPENDED) or {}).get("status") == "True"
    if set_condition(conditions, SUSPENDED, suspended, reason=reason, message=message, now=now):
        step.notes.append(Note("Normal", "Suspended" if suspended else "Resumed", message))
    if was_suspended and not suspended:
        step.status["startTime"] = timestamp(now)  # the deadline counts from the resumption
