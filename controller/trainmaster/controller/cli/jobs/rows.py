"""What there is to tell of a job in a row: its state, nodes, restarts and times, from the job and its pods; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from trainmaster.controller.cli.follow.job_status import (
    FollowedJob,
    JobStatus,
    Progress,
    progress_of,
    true_conditions,
)
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.container_failures import rank_of
from trainmaster.runtime.api.constants import NODE
from trainmaster.runtime.jobs.constants import CREATED, FAILED, RESTARTING, RUNNING, SUCCEEDED, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

_V1_STATES: Final = (SUCCEEDED, FAILED, SUSPENDED, RESTARTING, RUNNING, CREATED)
"""Conditions of jobs of `kubeflow.org/v1`, the one that tells most first: several hold at a time."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job at a moment."""

    kind: str
    namespace: str
    name: str
    state: str
    """One word for what it is at."""

    has_ended: bool
    nodes: int
    """How many are ready; of a job of `kubeflow.org/v1`, active."""

    wanted: int | None
    """Of how many; None if nobody knows."""

    restarts: int
    created: str
    """RFC 3339, as the other times."""

    started: str | None
    """When the first container started; None before that, or if it is not known."""

    ended: str | None
    goes_on: bool
    """Whether it has started and not ended, so that its duration grows."""

    progress: Progress | None

    def age(self, now: datetime) -> float:
        """Return the seconds since it was created."""
        return _seconds(self.created, now)

    def duration(self, now: datetime) -> float | None:
        """Return the seconds from its start to its end, or up to now; None if it does not run, or nobody knows."""
        if self.started is None or (self.ended is None and not self.goes_on):
            return None
        return _seconds(self.started, now if self.ended is None else _time(self.ended))


def job_row(job: Job, pods: Iterable[JsonObject], jobset: JsonObject | None) -> JobRow:
    """Return the row of a job.

    Args:
        job: The job.
        pods: Of a TrainJob, those with its name in their labels.
        jobset: What a TrainJob has become; None if there is none, or it is not known.
    """
    return _trainjob_row(job, pods, jobset) if job.is_trainjob else _v1_row(job)


def _trainjob_row(job: Job, pods: Iterable[JsonObject], jobset: JsonObject | None) -> JobRow:
    created = job.object["metadata"]["creationTimestamp"]
    status = JobStatus(FollowedJob(job.namespace, job.name, job.uid, created), true_conditions(job.object))
    for pod in pods:
        if pod["metadata"]["creationTimestamp"] >= created:  # not of a namesake that was deleted before
            status.observe_pod(pod)
    whole = ((jobset or {}).get("status") or {}).get("restarts") or 0
    return JobRow(
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        state=status.state,
        has_ended=status.outcome is not None,
        nodes=sum(_is_ready(pod) for pod in status.pods.values() if rank_of(pod) is not None),
        wanted=_wanted(job, jobset),
        restarts=max(status.restarts, whole),
        created=created,
        started=status.started,
        ended=status.ended,
        goes_on=status.outcome is None and bool(status.pods),
        progress=progress_of(job.object),
    )


def _is_ready(pod: JsonObject) -> bool:
    conditions: Iterable[Mapping[str, str]] = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _wanted(job: Job, jobset: JsonObject | None) -> int | None:
    """Return how many nodes a TrainJob is to have; its workload knows what its runtime says."""
    for replicated in ((jobset or {}).get("spec") or {}).get("replicatedJobs") or ():
        if replicated["name"] == NODE:
            return int(replicated.get("replicas", 1) * replicated["template"]["spec"].get("parallelism", 1))
    return (job.spec.get("trainer") or {}).get("numNodes") or None


def _v1_row(job: Job) -> JobRow:
    conditions, status = job.conditions, job.object.get("status") or {}
    state = next((each for each in _V1_STATES if each in conditions), "Pending")
    replicas: Mapping[str, JsonObject] = status.get("replicaStatuses") or {}
    return JobRow(
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        state=state,
        has_ended=job.outcome is not None,
        nodes=sum(each.get("active") or 0 for each in replicas.values()),
        wanted=sum(
            replica.get("replicas", 1)
            for name, specs in job.spec.items()
            if name.endswith("ReplicaSpecs") and isinstance(specs, dict)
            for replica in specs.values()
        ),
        restarts=sum(each.get("restarts") or 0 for each in replicas.values()),
        created=job.object["metadata"]["creationTimestamp"],
        started=status.get("startTime"),
        ended=status.get("completionTime") or conditions.get(FAILED, {}).get("lastTransitionTime"),
        goes_on=job.outcome is None and state != SUSPENDED,
        progress=None,
    )


def _seconds(since: str, until: datetime) -> float:
    return (until - _time(since)).total_seconds()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
