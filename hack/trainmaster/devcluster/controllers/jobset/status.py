"""The status of a JobSet: what its child Jobs say about it, its conditions, and the events that go with them. Pure.

A condition appears when it first becomes true; one that was never true is absent. Some exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.jobset.children import REPLICATED_JOB_NAME, RESTART_ATTEMPT
from trainmaster.devcluster.controllers.objects import condition_of, is_condition_true
from trainmaster.devcluster.events import Note
from trainmaster.runtime.jsontree import JsonObject


@dataclass(slots=True)
class ChildJobs:
    """The child Jobs of a JobSet by what has become of them."""

    previous: list[JsonObject] = field(default_factory=list)
    """Jobs of an attempt before the last restart."""
    active: list[JsonObject] = field(default_factory=list)
    successful: list[JsonObject] = field(default_factory=list)
    failed: list[JsonObject] = field(default_factory=list)

    def names(self) -> set[str]:
        """Return the names of all Jobs, none of which can be created."""
        every = [*self.previous, *self.active, *self.successful, *self.failed]
        return {job["metadata"]["name"] for job in every}


def sort_child_jobs(jobs: Iterable[JsonObject], *, restarts: int) -> ChildJobs:
    """Sort the Jobs into their buckets."""
    children = ChildJobs()
    for job in jobs:
        if _attempt(job) < restarts:
            children.previous.append(job)
        elif is_condition_true(job, "Complete"):
            children.successful.append(job)
        elif is_condition_true(job, "Failed"):
            children.failed.append(job)
        else:
            children.active.append(job)
    return children


def _attempt(job: JsonObject) -> int:
    text = (job["metadata"].get("labels") or {}).get(RESTART_ATTEMPT, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def replicated_job_of(job: JsonObject) -> str:
    """Return the name of the replicated Job that a child belongs to."""
    name: str = (job["metadata"].get("labels") or {}).get(REPLICATED_JOB_NAME, "")
    return name


def is_suspended(job: JsonObject) -> bool:
    """Tell whether a Job is told not to run."""
    return bool(job["spec"].get("suspend"))


def replicated_jobs_status(jobset: JsonObject, children: ChildJobs) -> list[JsonObject]:
    """Compute `status.replicatedJobsStatus`, in the order of the spec."""
    counts = {
        each["name"]: {"name": each["name"], "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        for each in jobset["spec"]["replicatedJobs"]
    }
    for job in children.active:
        count = counts.get(replicated_job_of(job))
        if count is not None:
            count["ready"] += _is_ready(job)
            count["active"] += job.get("status", {}).get("active", 0) > 0
            count["suspended"] += is_suspended(job)
    for outcome, jobs in (("succeeded", children.successful), ("failed", children.failed)):
        for job in jobs:
            count = counts.get(replicated_job_of(job))
            if count is not None:
                count[outcome] += 1
    return list(counts.values())


def _is_ready(job: JsonObject) -> bool:
    spec, status = job["spec"], job.get("status", {})
    wanted = spec.get("parallelism", 1)
    if "completions" in spec:
        wanted = min(wanted, spec["completions"])
    return bool(status.get("ready", 0) + status.get("succeeded", 0) >= wanted)


COMPLETED = "Completed"
FAILED = "Failed"
SUSPENDED = "Suspended"
STARTUP_IN_PROGRESS = "StartupPolicyInProgress"
STARTUP_COMPLETED = "StartupPolicyCompleted"
RESTARTING = "RestartingJobSet"

_OPPOSITE = {STARTUP_IN_PROGRESS: STARTUP_COMPLETED, STARTUP_COMPLETED: STARTUP_IN_PROGRESS}


def finished_condition(status: JsonObject) -> JsonObject | None:
    """Return the condition Completed or Failed from the status of a finished JobSet."""
    for kind in (COMPLETED, FAILED):
        condition = condition_of(status.get("conditions") or (), kind)
        if condition is not None and condition["status"] == "True":
            return condition
    return None


def set_condition(
    status: JsonObject,
    kind: str,
    reason: str,
    message: str,
    *,
    value: bool = True,
    event: Literal["Normal", "Warning"] = "Normal",
    now: datetime,
) -> list[Note]:
    """Set a condition in a private status; returns the event to record if that changed anything."""
    conditions: list[JsonObject] = status.setdefault("conditions", [])
    text = "True" if value else "False"
    new = {
        "type": kind,
        "status": text,
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    known = changed = False
    for position, condition in enumerate(conditions):
        if condition["type"] == kind:
            known = True
            if condition["status"] != text:
                conditions[position] = new
                changed = True
        elif value and condition["type"] == _OPPOSITE.get(kind) and condition["status"] == "True":
            conditions[position] = {**condition, "status": "False"}
            changed = True
    if not known and value:
        conditions.append(new)
        changed = True
    if not conditions:
        del status["conditions"]
    return [Note(event, reason, message)] if changed else []
