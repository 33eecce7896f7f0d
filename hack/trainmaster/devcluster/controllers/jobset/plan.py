"""What to do next about a JobSet, from it and its Jobs. Pure; the controller carries it out.

The order is that of the JobSet controller: finished? restarted? failed? succeeded? and only then what is missing. It is
all derived from stored objects, so the plan after a crash is the plan before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainmaster.devcluster.controllers.jobset import policies
from trainmaster.devcluster.controllers.jobset.children import (
    build_claims,
    build_jobs,
    build_service,
    has_dns_hostnames,
    replicas_of,
)
from trainmaster.devcluster.controllers.jobset.status import (
    COMPLETED,
    FAILED,
    RESTARTING,
    STARTUP_COMPLETED,
    STARTUP_IN_PROGRESS,
    SUSPENDED,
    ChildJobs,
    finished_condition,
    is_suspended,
    replicated_job_of,
    replicated_jobs_status,
    set_condition,
    sort_child_jobs,
)
from trainmaster.devcluster.controllers.objects import is_terminating, parse_time
from trainmaster.devcluster.events import Note
from trainmaster.runtime.jsontree import JsonObject, copy_tree


@dataclass(slots=True)
class JobSetPlan:
    """What to do; the status is written after everything else has succeeded."""

    status: JsonObject
    delete: list[JsonObject] = field(default_factory=list)
    ensure: list[JsonObject] = field(default_factory=list)
    """The Service and claims that have to exist before the Jobs; existing ones are left alone."""
    create: list[JsonObject] = field(default_factory=list)
    resize: list[tuple[JsonObject, JsonObject]] = field(default_factory=list)
    """Jobs of another size than their JobSet, each with the fields that change."""
    suspend: list[JsonObject] = field(default_factory=list)
    resume: list[tuple[JsonObject, JsonObject]] = field(default_factory=list)
    """Suspended Jobs, each with the pod template of the JobSet that it takes over."""
    notes: list[Note] = field(default_factory=list)
    delete_jobset: bool = False
    requeue_after: float | None = None


def plan_jobset(jobset: JsonObject, jobs: Sequence[JsonObject], *, now: datetime) -> JobSetPlan:
    """Plan what to do about a JobSet that is not being deleted and belongs to this controller."""
    status: JsonObject = copy_tree(jobset.get("status", {}))
    status.setdefault("restarts", 0)
    children = sort_child_jobs(jobs, restarts=status["restarts"])
    counts = replicated_jobs_status(jobset, children)
    if not _same_counts(status.get("replicatedJobsStatus"), counts):
        status["replicatedJobsStatus"] = counts
    plan = JobSetPlan(status=status)
    end = finished_condition(status)
    if end is not None:
        plan.delete = children.active
        _apply_ttl(plan, jobset, end, now)
        return plan
    plan.delete = [job for job in children.previous if not is_terminating(job)]
    if not is_suspended(jobset) and _are_all_ready(jobset, counts):
        _clear_restarting(plan, "JobsReady", "all jobs are ready", now=now)
    if children.failed:
        _apply_failure_policy(plan, jobset, children, now=now)
    elif children.successful and policies.is_success_policy_met(jobset, children.successful):
        status["terminalState"] = COMPLETED
        plan.notes += set_condition(status, COMPLETED, "AllJobsCompleted", "jobset completed successfully", now=now)
        _clear_restarting(plan, "JobSetCompleted", "jobset completed successfully", now=now)
    else:
        by_name = {count["name"]: count for count in counts}
        if has_dns_hostnames(jobset):
            plan.ensure.append(build_service(jobset))
        plan.ensure += build_claims(jobset)
        _create_jobs(plan, jobset, children, by_name, now=now)
        _resize_jobs(plan, jobset, children)
        if is_suspended(jobset):
            _suspend_jobs(plan, children, now=now)
        else:
            _resume_jobs(plan, jobset, children, by_name, now=now)
    return plan


def _same_counts(old: list[JsonObject] | None, new: list[JsonObject]) -> bool:
    """Compare without regard to order, which is not part of what is observed."""
    return old is not None and sorted(old, key=_name) == sorted(new, key=_name)


def _name(count: JsonObject) -> str:
    name: str = count["name"]
    return name


def _apply_ttl(plan: JobSetPlan, jobset: JsonObject, end: JsonObject, now: datetime) -> None:
    lifetime = jobset["spec"].get("ttlSecondsAfterFinished")
    if lifetime is None:
        return
    left = (parse_time(end["lastTransitionTime"]) + timedelta(seconds=lifetime) - now).total_seconds()
    if left > 0:
        plan.requeue_after = left
    else:
        plan.delete_jobset = True


def _are_all_ready(jobset: JsonObject, counts: Sequence[JsonObject]) -> bool:
    ready = sum(count["ready"] + count["succeeded"] for count in counts)
    return bool(ready == sum(map(replicas_of, jobset["spec"]["replicatedJobs"])))


def _clear_restarting(plan: JobSetPlan, reason: str, message: str, *, now: datetime) -> None:
    plan.notes += set_condition(plan.status, RESTARTING, reason, message, value=False, now=now)


def _apply_failure_policy(plan: JobSetPlan, jobset: JsonObject, children: ChildJobs, *, now: datetime) -> None:
    if "failurePolicy" not in jobset["spec"]:
        text = "jobset failed due to one or more job failures"
        _fail(plan, "FailedJobs", text, job=policies.first_failed_job(children.failed), now=now)
        return
    result = policies.apply_failure_policy(jobset, children.failed)
    if result.action == policies.FAIL:
        text = "applying FailJobSet failure policy action"
        _fail(plan, "FailJobSetFailurePolicyAction", text, job=result.job, now=now)
        return
    counted = plan.status.get("restartsCountTowardsMax", 0)
    if result.action == policies.RESTART:
        if counted >= jobset["spec"]["failurePolicy"].get("maxRestarts", 0):
            text = "jobset failed due to reaching max number of restarts"
            _fail(plan, "ReachedMaxRestarts", text, job=result.job, now=now)
            return
        plan.status["restartsCountTowardsMax"] = counted + 1
    plan.status["restarts"] += 1
    message = f"applying {result.action} failure policy action (first failed job: {result.job})"
    reason = "DefaultFailurePolicy" if result.rule is None else f"FailurePolicy_{result.rule}"
    set_condition(plan.status, RESTARTING, reason, message, now=now)
    plan.notes.append(Note("Warning", f"{result.action}FailurePolicyAction", message))


def _fail(plan: JobSetPlan, reason: str, text: str, *, job: str, now: datetime) -> None:
    message = f"{text} (first failed job: {job})"
    plan.status["terminalState"] = FAILED
    plan.notes += set_condition(plan.status, FAILED, reason, message, event="Warning", now=now)
    _clear_restarting(plan, "JobSetFailed", message, now=now)


def _create_jobs(
    plan: JobSetPlan, jobset: JsonObject, children: ChildJobs, counts: dict[str, JsonObject], *, now: datetime
) -> None:
    strategy = (jobset["spec"].get("failurePolicy") or {}).get("restartStrategy")
    if strategy == "BlockingRecreate" and children.previous:
        return
    taken = children.names()
    in_order = policies.is_startup_in_order(jobset) and not is_suspended(jobset)
    for replicated_job in jobset["spec"]["replicatedJobs"]:
        if not policies.are_dependencies_reached(jobset, replicated_job, counts):
            continue
        if in_order and policies.all_replicas_started(replicated_job, counts[replicated_job["name"]]):
            continue
        plan.create += [job for job in build_jobs(jobset, replicated_job) if job["metadata"]["name"] not in taken]
        if in_order:
            _set_startup_condition(plan, completed=False, now=now)
            return
    if in_order:
        _set_startup_condition(plan, completed=True, now=now)


def _set_startup_condition(plan: JobSetPlan, *, completed: bool, now: datetime) -> None:
    if completed:
        kind, reason, text = STARTUP_COMPLETED, "InOrderStartupPolicyCompleted", "has completed"
    else:
        kind, reason, text = STARTUP_IN_PROGRESS, "InOrderStartupPolicyInProgress", "is in progress"
    plan.notes += set_condition(plan.status, kind, reason, f"in order startup policy {text}", now=now)


def _resize_jobs(plan: JobSetPlan, jobset: JsonObject, children: ChildJobs) -> None:
    """Give Jobs the size of their JobSet, whoever has changed which; what it does not say stays."""
    for replicated_job in jobset["spec"]["replicatedJobs"]:
        wanted = replicated_job["template"]["spec"]
        size = {name: wanted[name] for name in ("parallelism", "completions") if wanted.get(name)}
        if len(size) < 2 or wanted.get("completionMode") != "Indexed":
            continue
        for job in children.active:
            if replicated_job_of(job) == replicated_job["name"] and not size.items() <= job["spec"].items():
                plan.resize.append((job, size))


def _suspend_jobs(plan: JobSetPlan, children: ChildJobs, *, now: datetime) -> None:
    plan.suspend = [job for job in children.active if not is_suspended(job)]
    plan.notes += set_condition(plan.status, SUSPENDED, "SuspendedJobs", "jobset is suspended", now=now)
    _clear_restarting(plan, "JobSetSuspended", "jobset is suspended", now=now)


def _resume_jobs(
    plan: JobSetPlan, jobset: JsonObject, children: ChildJobs, counts: dict[str, JsonObject], *, now: datetime
) -> None:
    waiting = [job for job in children.active if is_suspended(job)]
    for replicated_job in jobset["spec"]["replicatedJobs"]:
        started = policies.all_replicas_started(replicated_job, counts[replicated_job["name"]])
        if policies.is_startup_in_order(jobset) and started:
            continue
        if not policies.are_dependencies_reached(jobset, replicated_job, counts):
            continue
        template = replicated_job["template"]["spec"]["template"]
        plan.resume += [(job, template) for job in waiting if replicated_job_of(job) == replicated_job["name"]]
        if policies.is_startup_in_order(jobset):
            break
    plan.notes += set_condition(plan.status, SUSPENDED, "ResumeJobs", "jobset is resumed", value=False, now=now)
