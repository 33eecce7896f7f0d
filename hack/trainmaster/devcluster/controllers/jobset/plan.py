"""One step of a JobSet: from the JobSet and its Jobs to what should be done next. Pure; the controller carries it out.

The order of the questions is that of the JobSet controller: finished? restarted? failed? succeeded? and only then what
is missing. Every answer is derived from stored objects, so the plan after a crash is the plan before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainmaster.devcluster.controllers.jobset import conditions, policies
from trainmaster.devcluster.controllers.jobset.children import build_claims, build_jobs, build_service, replicas_of
from trainmaster.devcluster.controllers.jobset.conditions import set_condition
from trainmaster.devcluster.controllers.jobset.names import has_dns_hostnames
from trainmaster.devcluster.controllers.jobset.status import (
    Children,
    is_suspended,
    replicated_job_of,
    sort_children,
    summarize,
)
from trainmaster.devcluster.controllers.objects import condition_of, is_terminating, parse_time
from trainmaster.devcluster.events import Note
from trainmaster.runtime.jsontree import JsonObject, copy_tree


@dataclass(slots=True)
class Plan:
    """What to do; the status is written after everything else has succeeded."""

    status: JsonObject
    delete: list[JsonObject] = field(default_factory=list)
    ensure: list[JsonObject] = field(default_factory=list)
    """The Service and claims that have to exist before the Jobs; existing ones are left alone."""
    create: list[JsonObject] = field(default_factory=list)
    suspend: list[JsonObject] = field(default_factory=list)
    resume: list[tuple[JsonObject, JsonObject]] = field(default_factory=list)
    """Suspended Jobs, each with the pod template of the JobSet that it takes over."""
    notes: list[Note] = field(default_factory=list)
    delete_jobset: bool = False
    requeue_after: float | None = None


def plan(jobset: JsonObject, jobs: Sequence[JsonObject], *, now: datetime) -> Plan:
    """Plan the next step of a JobSet that is not being deleted and belongs to this controller."""
    status: JsonObject = copy_tree(jobset.get("status", {}))
    status.setdefault("restarts", 0)
    children = sort_children(jobs, restarts=status["restarts"])
    counts = summarize(jobset, children)
    if not _same_counts(status.get("replicatedJobsStatus"), counts):
        status["replicatedJobsStatus"] = counts
    step = Plan(status=status)
    end = _finished_condition(status)
    if end is not None:
        step.delete = children.active
        _expire(step, jobset, end, now)
        return step
    step.delete = [job for job in children.previous if not is_terminating(job)]
    if not is_suspended(jobset) and _are_all_ready(jobset, counts):
        _end_restart(step, "JobsReady", "all jobs are ready", now=now)
    if children.failed:
        _handle_failure(step, jobset, children, now=now)
    elif children.successful and policies.has_succeeded(jobset, children.successful):
        status["terminalState"] = conditions.COMPLETED
        step.notes += set_condition(
            status, conditions.COMPLETED, "AllJobsCompleted", "jobset completed successfully", now=now
        )
        _end_restart(step, "JobSetCompleted", "jobset completed successfully", now=now)
    else:
        by_name = {count["name"]: count for count in counts}
        if has_dns_hostnames(jobset):
            step.ensure.append(build_service(jobset))
        step.ensure += build_claims(jobset)
        _create_jobs(step, jobset, children, by_name, now=now)
        if is_suspended(jobset):
            _suspend(step, children, now=now)
        else:
            _resume(step, jobset, children, by_name, now=now)
    return step


def _same_counts(old: list[JsonObject] | None, new: list[JsonObject]) -> bool:
    """Compare without regard to order, which is not part of what is observed."""
    return old is not None and sorted(old, key=_name) == sorted(new, key=_name)


def _name(count: JsonObject) -> str:
    name: str = count["name"]
    return name


def _finished_condition(status: JsonObject) -> JsonObject | None:
    for kind in (conditions.COMPLETED, conditions.FAILED):
        condition = condition_of(status.get("conditions") or (), kind)
        if condition is not None and condition["status"] == "True":
            return condition
    return None


def _expire(step: Plan, jobset: JsonObject, end: JsonObject, now: datetime) -> None:
    lifetime = jobset["spec"].get("ttlSecondsAfterFinished")
    if lifetime is None:
        return
    left = (parse_time(end["lastTransitionTime"]) + timedelta(seconds=lifetime) - now).total_seconds()
    if left > 0:
        step.requeue_after = left
    else:
        step.delete_jobset = True


def _are_all_ready(jobset: JsonObject, counts: Sequence[JsonObject]) -> bool:
    ready = sum(count["ready"] + count["succeeded"] for count in counts)
    return bool(ready == sum(map(replicas_of, jobset["spec"]["replicatedJobs"])))


def _end_restart(step: Plan, reason: str, message: str, *, now: datetime) -> None:
    step.notes += set_condition(step.status, conditions.RESTARTING, reason, message, value=False, now=now)


def _handle_failure(step: Plan, jobset: JsonObject, children: Children, *, now: datetime) -> None:
    if "failurePolicy" not in jobset["spec"]:
        text = "jobset failed due to one or more job failures"
        _fail(step, "FailedJobs", text, job=policies.first_failed(children.failed), now=now)
        return
    verdict = policies.judge_failures(jobset, children.failed)
    if verdict.action == policies.FAIL:
        text = "applying FailJobSet failure policy action"
        _fail(step, "FailJobSetFailurePolicyAction", text, job=verdict.job, now=now)
        return
    counted = step.status.get("restartsCountTowardsMax", 0)
    if verdict.action == policies.RESTART:
        if counted >= jobset["spec"]["failurePolicy"].get("maxRestarts", 0):
            text = "jobset failed due to reaching max number of restarts"
            _fail(step, "ReachedMaxRestarts", text, job=verdict.job, now=now)
            return
        step.status["restartsCountTowardsMax"] = counted + 1
    step.status["restarts"] += 1
    message = f"applying {verdict.action} failure policy action (first failed job: {verdict.job})"
    reason = "DefaultFailurePolicy" if verdict.rule is None else f"FailurePolicy_{verdict.rule}"
    set_condition(step.status, conditions.RESTARTING, reason, message, now=now)
    step.notes.append(Note("Warning", f"{verdict.action}FailurePolicyAction", message))


def _fail(step: Plan, reason: str, text: str, *, job: str, now: datetime) -> None:
    message = f"{text} (first failed job: {job})"
    step.status["terminalState"] = conditions.FAILED
    step.notes += set_condition(step.status, conditions.FAILED, reason, message, event="Warning", now=now)
    _end_restart(step, "JobSetFailed", message, now=now)


def _create_jobs(
    step: Plan, jobset: JsonObject, children: Children, counts: dict[str, JsonObject], *, now: datetime
) -> None:
    strategy = (jobset["spec"].get("failurePolicy") or {}).get("restartStrategy")
    if strategy == "BlockingRecreate" and children.previous:
        return
    taken = children.names()
    in_order = policies.starts_in_order(jobset) and not is_suspended(jobset)
    for replicated_job in jobset["spec"]["replicatedJobs"]:
        if not policies.may_start(jobset, replicated_job, counts):
            continue
        if in_order and policies.has_started(replicated_job, counts[replicated_job["name"]]):
            continue
        step.create += [job for job in build_jobs(jobset, replicated_job) if job["metadata"]["name"] not in taken]
        if in_order:
            _note_startup(step, completed=False, now=now)
            return
    if in_order:
        _note_startup(step, completed=True, now=now)


def _note_startup(step: Plan, *, completed: bool, now: datetime) -> None:
    if completed:
        kind, reason, text = conditions.STARTUP_COMPLETED, "InOrderStartupPolicyCompleted", "has completed"
    else:
        kind, reason, text = conditions.STARTUP_IN_PROGRESS, "InOrderStartupPolicyInProgress", "is in progress"
    step.notes += set_condition(step.status, kind, reason, f"in order startup policy {text}", now=now)


def _suspend(step: Plan, children: Children, *, now: datetime) -> None:
    step.suspend = [job for job in children.active if not is_suspended(job)]
    step.notes += set_condition(step.status, conditions.SUSPENDED, "SuspendedJobs", "jobset is suspended", now=now)
    _end_restart(step, "JobSetSuspended", "jobset is suspended", now=now)


def _resume(
    step: Plan, jobset: JsonObject, children: Children, counts: dict[str, JsonObject], *, now: datetime
) -> None:
    waiting = [job for job in children.active if is_suspended(job)]
    for replicated_job in jobset["spec"]["replicatedJobs"]:
        started = policies.has_started(replicated_job, counts[replicated_job["name"]])
        if policies.starts_in_order(jobset) and started:
            continue
        if not policies.may_start(jobset, replicated_job, counts):
            continue
        template = replicated_job["template"]["spec"]["template"]
        step.resume += [(job, template) for job in waiting if replicated_job_of(job) == replicated_job["name"]]
        if policies.starts_in_order(jobset):
            break
    step.notes += set_condition(
        step.status, conditions.SUSPENDED, "ResumeJobs", "jobset is resumed", value=False, now=now
    )
