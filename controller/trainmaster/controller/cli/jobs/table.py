"""Jobs as rows of a table: what is shown of each, from the job and its pods; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from trainmaster.controller.cli.follow.job_status import FollowedJob, JobStatus, true_conditions
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.printers import aligned
from trainmaster.controller.container_failures import JOBSET_LABEL, rank_of
from trainmaster.runtime.api.constants import NODE
from trainmaster.runtime.jobs.constants import CREATED, FAILED, RESTARTING, RUNNING, SUCCEEDED, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

HEADER: Final = ("KIND", "NAME", "STATE", "NODES", "RESTARTS", "AGE", "DURATION")
UNKNOWN: Final = "-"

_V1_STATES: Final = (SUCCEEDED, FAILED, SUSPENDED, RESTARTING, RUNNING, CREATED)
"""Conditions of jobs of `kubeflow.org/v1`, the one that tells most first: several hold at a time."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

_UNITS: Final = (
    # From which number on, and below which number with what parts.
    ("d", _DAY, 2, "h", _HOUR, 8),
    ("h", _HOUR, 3, "m", _MINUTE, 8),
    ("m", _MINUTE, 2, "s", 1, 10),
)

Key = tuple[str, str]
"""Namespace and name."""


def table(
    jobs: Sequence[Job],
    *,
    pods: Iterable[JsonObject],
    jobsets: Iterable[JsonObject],
    now: datetime,
    namespaces: bool,
) -> list[str]:
    """Return the lines of the table.

    Args:
        jobs: In the order of the lines.
        pods: Of all TrainJobs among them, and perhaps of others.
        jobsets: Likewise.
        now: For ages.
        namespaces: Whether to tell them.
    """
    pods_by_job: dict[Key, list[JsonObject]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        pods_by_job.setdefault((pod["metadata"]["namespace"], labels.get(JOBSET_LABEL, "")), []).append(pod)
    jobset_of = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in jobsets}
    rows: list[tuple[str, ...]] = [("NAMESPACE", *HEADER) if namespaces else HEADER]
    for job in jobs:
        key = (job.namespace, job.name)
        if job.is_trainjob:
            cells = _trainjob(job, pods_by_job.get(key, ()), jobset_of.get(key), now)
        else:
            cells = _v1_job(job, now)
        row = (job.kind, job.name, *cells)
        rows.append((job.namespace, *row) if namespaces else row)
    return aligned(rows)


def _trainjob(job: Job, pods: Iterable[JsonObject], jobset: JsonObject | None, now: datetime) -> Sequence[str]:
    created = job.object["metadata"]["creationTimestamp"]
    status = JobStatus(FollowedJob(job.namespace, job.name, job.uid, created), true_conditions(job.object))
    for pod in pods:
        if pod["metadata"]["creationTimestamp"] >= created:  # not of a namesake that was deleted before
            status.observe_pod(pod)
    ready = sum(_is_ready(pod) for pod in status.pods.values() if rank_of(pod) is not None)
    whole = ((jobset or {}).get("status") or {}).get("restarts") or 0
    return (
        status.state,
        _nodes(ready, _wanted(job, jobset), has_ended=status.outcome is not None),
        str(max(status.restarts, whole)),
        human_duration(_seconds(created, now)),
        _duration(status.started, status.ended, now, ongoing=status.outcome is None and bool(status.pods)),
    )


def _nodes(now: int, wanted: int | str, *, has_ended: bool) -> str:
    """Write how many nodes there are of those wanted; of a job that has ended none are, whatever became of it."""
    return str(wanted) if has_ended else f"{now}/{wanted}"


def _is_ready(pod: JsonObject) -> bool:
    conditions: Iterable[Mapping[str, str]] = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _wanted(job: Job, jobset: JsonObject | None) -> str:
    """Return how many nodes a TrainJob is to have; its workload knows what its runtime says."""
    for replicated in ((jobset or {}).get("spec") or {}).get("replicatedJobs") or ():
        if replicated["name"] == NODE:
            parallelism = replicated["template"]["spec"].get("parallelism", 1)
            return str(replicated.get("replicas", 1) * parallelism)
    return str((job.spec.get("trainer") or {}).get("numNodes") or UNKNOWN)


def _v1_job(job: Job, now: datetime) -> Sequence[str]:
    conditions, status = job.conditions, job.object.get("status") or {}
    state = next((each for each in _V1_STATES if each in conditions), "Pending")
    replicas: Mapping[str, JsonObject] = status.get("replicaStatuses") or {}
    active = sum(each.get("active") or 0 for each in replicas.values())
    restarts = sum(each.get("restarts") or 0 for each in replicas.values())
    wanted = sum(
        replica.get("replicas", 1)
        for name, specs in job.spec.items()
        if name.endswith("ReplicaSpecs") and isinstance(specs, dict)
        for replica in specs.values()
    )
    ended = status.get("completionTime") or conditions.get(FAILED, {}).get("lastTransitionTime")
    return (
        state,
        _nodes(active, wanted, has_ended=job.outcome is not None),
        str(restarts),
        human_duration(_seconds(job.object["metadata"]["creationTimestamp"], now)),
        _duration(status.get("startTime"), ended, now, ongoing=job.outcome is None and state != SUSPENDED),
    )


def _duration(started: str | None, ended: str | None, now: datetime, *, ongoing: bool) -> str:
    if started is None or (ended is None and not ongoing):
        return UNKNOWN
    return human_duration(_seconds(started, now if ended is None else _time(ended)))


def _seconds(since: str, until: datetime) -> float:
    return (until - _time(since)).total_seconds()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def human_duration(seconds: float) -> str:
    """Write a duration as kubectl does, in less detail the longer it is: `119s`, `2m5s`, `3h20m`, `5d1h`, `40d`."""
    whole = max(0, int(seconds))
    for name, unit, least, part_name, part, parts_below in _UNITS:
        if whole >= least * unit:
            number, rest = divmod(whole, unit)
            shown = rest // part if number < parts_below else 0
            return f"{number}{name}" + (f"{shown}{part_name}" if shown else "")
    return f"{whole}s"
