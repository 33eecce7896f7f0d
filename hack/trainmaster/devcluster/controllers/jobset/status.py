"""What the child Jobs of a JobSet say about its status. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from trainmaster.devcluster.controllers.jobset import labels
from trainmaster.devcluster.controllers.objects import is_condition_true
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
    text = (job["metadata"].get("labels") or {}).get(labels.RESTART_ATTEMPT, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def replicated_job_of(job: JsonObject) -> str:
    """Return the name of the replicated Job that a child belongs to."""
    name: str = (job["metadata"].get("labels") or {}).get(labels.REPLICATED_JOB_NAME, "")
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
