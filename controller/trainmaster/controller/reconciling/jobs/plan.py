"""Plan: which writes bring the cluster to where a job wants it, and the status that follows. Pure; `apply` performs it.

Rules (Training Operator V1):

- Nothing is written for a job that is being deleted or managed by another controller.
- A finished job is cleaned up by its `cleanPodPolicy`, loses its PodGroup and what its kind does not keep (V1-B23: a
  HorizontalPodAutoscaler among it), and is deleted when it has outlived its time to live.
- A suspended job has neither pods nor Services, whatever its `cleanPodPolicy`.
- A job that ends makes and replaces nothing any more.
- Limits come first: a job that has reached one fails, and is cleaned up when that is written, so that a crash in
  between does not undo it.
- A failed pod that is replaced is deleted when the status tells of it.
- Limits are in seconds, by the wall clock as the API has it. A deadline is known beforehand, so that the job can be
  looked at when it has passed (V1-B1).
- With a resilience policy that counts failures, pods are restarted together (see `group`), and not replaced.
- A Service goes before its pod, by which it is known that it has to go.

Those of what is created and applied are in `objects`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from trainmaster.controller.conditions import BLOCKED
from trainmaster.controller.explain.pods import phase_of
from trainmaster.controller.kube.clock import seconds_until
from trainmaster.controller.reconciling.jobs.group import Group, group_of
from trainmaster.controller.reconciling.jobs.objects import Plan, plan_objects, plan_pod_group, plan_pods, plan_roles
from trainmaster.controller.reconciling.jobs.observe import Observed
from trainmaster.controller.reconciling.jobs.replicas import (
    Replicas,
    RestartBackoff,
    backoff_limit_reached,
    by_replica_type,
    count_restarts,
    is_beyond,
    is_terminating,
    replicas_of,
)
from trainmaster.controller.reconciling.jobs.status import StatusUpdate
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.writes import JobEvent
from trainmaster.runtime.api.constants import POD_GROUP_KIND
from trainmaster.runtime.field_errors import FieldError, aggregate
from trainmaster.runtime.jobs.constants import (
    BACKOFF_LIMIT_REACHED,
    CLEAN_NONE,
    CLEAN_RUNNING,
    FAILED,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
)
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job
from trainmaster.runtime.jobs.podgroup import GangScheduler
from trainmaster.runtime.jobs.validation import check_job, check_resilience, excess_of
from trainmaster.runtime.jsontree import JsonObject

_FINAL: Final = (SUCCEEDED, FAILED)


def plan(observed: Observed, gang: GangScheduler | None, *, now: datetime, restarts: RestartBackoff) -> Plan:
    """Decide what to write for one job; `restarts` tells which failed pods were replaced, and how long others wait."""
    job = observed.job
    update = StatusUpdate(job, now)
    update.created()
    planned = Plan(update=update, has_pods=bool(observed.pods), status_events=update.events)
    planned.status_first = job.run_policy.backoff_limit is not None  # a restart counts before its pod goes (V1-B2)
    if job.is_true(SUCCEEDED) or job.is_true(FAILED):
        _clean_up(observed, gang, planned, now)
        if job.is_true(SUCCEEDED):
            update.active_have_succeeded()
    elif job.run_policy.suspend:
        if (group := group_of(job, observed.pods)) is not None and group.plan_suspension(planned):
            return planned
        update.suspended()
        planned.deletes = [*_present(observed.pods.values()), *_present(observed.services.values())]
        _stop(observed, gang, planned)
    elif wrong := _errors(job, has_pods=bool(observed.pods)):
        plan_roles(observed, planned)
        kind = job.kind.kind
        planned.problem = Problem(f"{kind}FailedValidation", aggregate(wrong), retry=False)
        note = f"{kind} failed validation because {job.kind.refusal(wrong)}"
        if not _is_blocked_by(planned.problem, job):
            planned.events.append(JobEvent(planned.problem.reason, note, "Warning"))
    else:
        update.resumed()
        _run(observed, gang, planned, now, restarts)
    return planned


def _errors(job: Job, *, has_pods: bool) -> list[FieldError]:
    """Return what is wrong with a job that nobody admitted; of one that has pods, why no more can be made."""
    found = (excess_of(job), *check_resilience(job)) if has_pods else check_job(job)
    return [each for each in found if isinstance(each, FieldError)]


def _is_blocked_by(problem: Problem, job: Job) -> bool:
    told = job.condition(BLOCKED)
    return told is not None and (told.get("reason"), told.get("message")) == (problem.reason, problem.message)


def _run(
    observed: Observed, gang: GangScheduler | None, planned: Plan, now: datetime, restarts: RestartBackoff
) -> None:
    job, update = observed.job, planned.update
    group = group_of(job, observed.pods)
    of_attempt = observed.pods if group is None else group.pods
    pods_by_type = by_replica_type(of_attempt.values())
    services_by_type = by_replica_type(observed.services.values())
    replicas = [replicas_of(job, replica_type, of_attempt, pods_by_type) for replica_type in job.replica_specs]
    to_deadline = _seconds_to_deadline(job, now)
    if told := _reached_limit(job, group, replicas, to_deadline):
        update.fail(f"Job {job.name} has failed because {told}")
        return
    planned.due = to_deadline
    may_create = gang is None or plan_pod_group(observed, gang, planned)
    if may_create or observed.pods:
        plan_objects(observed, planned)
    statuses = job.kind.replica_statuses(job, {each.replica_type: each.status for each in replicas})
    pods = {each.replica_type: each.pods for each in replicas}
    conditions = list(job.kind.update_job_status(job, statuses, pods))
    if group is not None and all(each.type != SUCCEEDED for each in conditions):
        if group.plan_ledger(replicas, planned, now):
            return
        conditions = group.plan_restart(planned) or conditions
        may_create = may_create and not group.former
    ends = any(each.failed_for_good for each in replicas) or any(each.type in _FINAL for each in conditions)
    if may_create and not ends and not planned.is_stuck:
        plan_pods(observed, gang, replicas, planned)
    if not observed.pods and not planned.creates:
        return
    update.started()
    for each in replicas:
        if each.failed_for_good:
            message = f'job "{job.name}" is failing because "{each.replica_type}" replica(s) failed.'
            update.fail(message, warning=True)
        elif not ends:
            _hold_back(each, job, planned, restarts)
            planned.deletes += [*_surplus_services(services_by_type, each), *each.surplus, *each.restarts]
            _tell_restarts(each, job, planned, restarts)
    there = {pod["metadata"]["uid"] for pod in observed.pods.values()}
    update.replicas(statuses, {each.replica_type: count_restarts(job, each, there) for each in replicas})
    _set_conditions(update, conditions)


def _reached_limit(job: Job, group: Group | None, replicas: Sequence[Replicas], to_deadline: float | None) -> str:
    """Say which limit a job has reached; empty: none."""
    if group is not None and group.failure:
        return group.failure
    if backoff_limit_reached(job, replicas):
        return BACKOFF_LIMIT_REACHED
    is_resumed = job.is_true(SUSPENDED)  # right now, so that its time begins anew
    if to_deadline is not None and to_deadline <= 0 and not is_resumed:
        return "it was active longer than specified deadline"
    return ""


def _set_conditions(update: StatusUpdate, conditions: Sequence[ConditionUpdate]) -> None:
    # Either of the two drops the other: as long as a replica waits for being replaced, the job is Restarting.
    is_restarting = any(each.type == RESTARTING for each in conditions)
    for condition in conditions:
        if not update.is_finished and not (is_restarting and condition.type == RUNNING):
            update.set(condition)
    if update.has_succeeded:
        update.active_have_succeeded()


def _hold_back(replicas: Replicas, job: Job, planned: Plan, restarts: RestartBackoff) -> None:
    """Leave failed pods where they are that are to be replaced later."""
    waits = [restarts.wait(job.metadata.uid, pod) for pod in replicas.restarts]
    replicas.restarts = [pod for pod, seconds in zip(replicas.restarts, waits, strict=True) if not seconds]
    later = [seconds for seconds in (*waits, planned.due) if seconds]
    planned.due = min(later, default=planned.due)


def _tell_restarts(replicas: Replicas, job: Job, planned: Plan, restarts: RestartBackoff) -> None:
    """Tell that failed pods are replaced; each time that one cannot be deleted, it is the same replacement."""
    if not replicas.restarts:
        return
    event = planned.update.restarting(replicas.replica_type)
    if new := [pod for pod in replicas.restarts if not restarts.is_recorded(job.metadata.uid, pod)]:
        planned.replaced.append(new)
        planned.events.append(event)


def _clean_up(observed: Observed, gang: GangScheduler | None, planned: Plan, now: datetime) -> None:
    job = observed.job
    policy = job.run_policy.clean_pod_policy
    pods = list(_present(observed.pods.values()))
    if policy == CLEAN_NONE:
        pods = []
    elif policy == CLEAN_RUNNING:
        pods = [pod for pod in pods if phase_of(pod) in ("Running", "Pending")]
    # Services first: which ones go is told by the pods that are still there.
    planned.deletes = [*_services_of(observed, pods), *pods]
    if policy not in (CLEAN_NONE, CLEAN_RUNNING):
        planned.deletes = [*_present(observed.services.values()), *pods]
    _stop(observed, gang, planned)
    planned.expires_in = _seconds_to_expiry(job, now)


def _stop(observed: Observed, gang: GangScheduler | None, planned: Plan) -> None:
    """Delete what only serves pods that are to run: the PodGroup, and what the kind does not keep."""
    job = observed.job
    if job.kind.keeps_objects:
        plan_roles(observed, planned)
    for (_, kind), objects in observed.others.items():
        for obj in _present(objects.values()):
            if kind == POD_GROUP_KIND:
                if gang is not None:
                    planned.events.append(JobEvent("JobTerminated", "Job has been terminated. Deleting PodGroup"))
                planned.deletes.append(obj)
            elif not job.kind.keeps_objects:
                planned.deletes.append(obj)


def _services_of(observed: Observed, pods: Iterable[JsonObject]) -> list[JsonObject]:
    names = (pod["metadata"]["name"] for pod in pods)
    return list(_present(filter(None, map(observed.services.get, names))))


def _surplus_services(by_type: Mapping[str, Sequence[JsonObject]], replicas: Replicas) -> list[JsonObject]:
    """Return the Services of slots that are not wanted any more, whether or not their pods are there."""
    names = set(replicas.names)
    services = _present(by_type.get(replicas.replica_type.lower(), ()))
    return [each for each in services if each["metadata"]["name"] not in names and is_beyond(each, len(names))]


def _present(objects: Iterable[JsonObject]) -> Iterator[JsonObject]:
    return (obj for obj in objects if not is_terminating(obj))


def _seconds_to_deadline(job: Job, now: datetime) -> float | None:
    """Return the seconds until a job has been active for too long; None if it never is."""
    limit = job.run_policy.active_deadline_seconds
    return None if limit is None else seconds_until(job.status.get("startTime"), limit, now)


def _seconds_to_expiry(job: Job, now: datetime) -> float | None:
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
    return seconds_until(ended, ttl, now)
