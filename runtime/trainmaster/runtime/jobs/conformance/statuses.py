"""The conditions of a sample, whatever state its replicas are in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from trainmaster.runtime.jobs.conformance.calls import unkept
from trainmaster.runtime.jobs.conformance.pods import MOST_PODS
from trainmaster.runtime.jobs.constants import (
    ALWAYS,
    EXIT_CODE,
    FAILED,
    NEVER,
    ON_FAILURE,
    RESTARTING,
    RUNNING,
    SUCCEEDED,
)
from trainmaster.runtime.jobs.defaulting import parse_job
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job
from trainmaster.runtime.jobs.pods import build_pod
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jsontree import JsonObject, copy_tree

POLICIES: Final = (NEVER, ON_FAILURE, ALWAYS, EXIT_CODE)
_CONDITIONS: Final = (RUNNING, RESTARTING, SUCCEEDED, FAILED)
_STATES: Final = 6  # that `_states` returns


def check_statuses(job: Job) -> Iterator[str]:
    """Return what is wrong with the conditions of a job, under each restart policy."""
    for policy, counts in itertools.product(POLICIES, _mixed_states(job)):
        yield from _status(_under(job, policy), counts)


def _under(job: Job, policy: str) -> Job:
    raw = copy_tree(job.raw)
    for replica in raw["spec"][job.kind.replica_specs_field].values():
        replica["restartPolicy"] = policy
    return parse_job(job.kind, raw)


def alike_states(job: Job) -> Iterator[Mapping[str, ReplicaStatus]]:
    """Return states of the replicas: those of all types are in the same."""
    states = {replica_type: _states(spec.replicas) for replica_type, spec in job.replica_specs.items()}
    for place in range(_STATES):
        yield {each: state[place] for each, state in states.items()}


def _mixed_states(job: Job) -> Iterator[Mapping[str, ReplicaStatus]]:
    """Return states of the replicas: those of all types are in the same, but for one type."""
    states = {replica_type: _states(spec.replicas) for replica_type, spec in job.replica_specs.items()}
    seen = set()
    for common, other, replica_type in itertools.product(range(_STATES), range(_STATES), states):
        counts = {each: state[other if each == replica_type else common] for each, state in states.items()}
        if (key := tuple(counts.values())) not in seen:
            seen.add(key)
            yield counts


def _states(replicas: int) -> list[ReplicaStatus]:
    """Return the states that replicas of a type may be in: all alike, or one of them otherwise."""
    return [
        ReplicaStatus(),
        ReplicaStatus(active=replicas),
        ReplicaStatus(succeeded=replicas),
        ReplicaStatus(failed=replicas),
        ReplicaStatus(active=max(replicas - 1, 0), failed=min(replicas, 1)),
        ReplicaStatus(active=max(replicas - 1, 0), succeeded=min(replicas, 1)),
    ]


def _status(job: Job, counts: Mapping[str, ReplicaStatus]) -> Iterator[str]:
    kind = job.kind
    replicas = kind.replica_statuses(job, counts)
    pods = {each: list(pods_in(job, each, status)) for each, status in counts.items()}
    updates: list[ConditionUpdate] = []

    def call() -> list[ConditionUpdate]:
        updates[:] = kind.update_job_status(job, replicas, pods)
        return list(updates)

    shown = ", ".join(
        f"{each}: {status.active} active, {status.succeeded} succeeded, {status.failed} failed"
        for each, status in counts.items()
    )
    place = f"update_job_status ({shown})"
    yield from unkept(job, place, call)
    types = [each.type for each in updates]
    yield from (
        f"{place} sets {each!r}, which is none of {', '.join(_CONDITIONS)}" for each in {*types} - {*_CONDITIONS}
    )
    yield from (f"{place} sets {each.type} without a message" for each in updates if not each.message)
    if SUCCEEDED in types and FAILED in types:
        yield f"{place} sets Succeeded and Failed"
    known = [status for each, status in counts.items() if each in kind.replica_types]
    if types and not any(status.active or status.succeeded or status.failed for status in known) and job.total_replicas:
        yield f"{place} sets {', '.join(types)} before anything runs"
    wanted = {each: job.replicas(each) for each in counts if each in kind.replica_types}
    is_done = any(wanted.values()) and all(counts[each].succeeded == count for each, count in wanted.items())
    if is_done and SUCCEEDED not in types:
        yield f"{place} does not set Succeeded, though all replicas have"


def pods_in(job: Job, replica_type: str, status: ReplicaStatus) -> Iterator[JsonObject]:
    """Build pods of a type that are in the given state."""
    phases = ["Succeeded"] * status.succeeded + ["Failed"] * status.failed + ["Running"] * status.active
    for index, phase in enumerate(phases[:MOST_PODS]):
        code = {"Succeeded": 0, "Failed": 1}.get(phase)
        state: JsonObject = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
        pod = build_pod(job, replica_type, index)
        statuses = [{"name": each["name"], "state": state} for each in pod["spec"]["containers"]]
        yield {**pod, "status": {"phase": phase, "containerStatuses": statuses}}
