"""Jobs as rows: their state, nodes, restarts and times, from the jobs and their pods, and the table of these; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from trainmaster.controller.cli.follow.job_status import FollowedJob, JobStatus
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.printers import aligned
from trainmaster.controller.container_failures import JOBSET_LABEL, rank_of
from trainmaster.controller.job_fields import Progress, number, true_conditions
from trainmaster.runtime.jobs.constants import CREATED, FAILED, RESTARTING, RUNNING, SUCCEEDED, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

_V1_STATES: Final = (SUCCEEDED, FAILED, SUSPENDED, RESTARTING, RUNNING, CREATED)
"""Conditions of jobs of `kubeflow.org/v1`, the one that tells most first: several hold at a time."""

HEADER: Final = ("KIND", "NAME", "STATE", "NODES", "RESTARTS", "AGE", "DURATION")
UNKNOWN: Final = "-"

_MINUTE, _HOUR, _DAY = 60, 3600, 86400

_UNITS: Final = (
    # From which number on, and below which number with what parts.
    ("d", _DAY, 2, "h", _HOUR, 8),
    ("h", _HOUR, 3, "m", _MINUTE, 8),
    ("m", _MINUTE, 2, "s", 1, 10),
)

Key = tuple[str, str]
"""Namespace and name."""


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
    return _trainjob_row(job, pods, jobset or {}) if job.is_trainjob else _v1_row(job)


def _trainjob_row(job: Job, pods: Iterable[JsonObject], jobset: JsonObject) -> JobRow:
    created = job.metadata["creationTimestamp"]
    status = JobStatus(FollowedJob(job.namespace, job.name, job.uid, created), job.conditions)
    for pod in pods:
        if pod["metadata"]["creationTimestamp"] >= created:  # not of a namesake that was deleted before
            status.observe_pod(pod)
    nodes = sum(each.pods for each in job.pod_sets(jobset) if each.is_node)
    return JobRow(
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        state=status.state,
        has_ended=status.outcome is not None,
        nodes=sum("Ready" in true_conditions(pod) for pod in status.pods.values() if rank_of(pod) is not None),
        wanted=nodes or sum(each.pods for each in job.pod_sets({})) or None,
        restarts=max(status.restarts, job.restarts(jobset)),
        created=created,
        started=status.started,
        ended=status.ended,
        goes_on=status.outcome is None and bool(status.pods),
        progress=job.progress,
    )


def _v1_row(job: Job) -> JobRow:
    state = next((each for each in _V1_STATES if each in job.conditions), "Pending")
    return JobRow(
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        state=state,
        has_ended=job.outcome is not None,
        nodes=sum(number(each.get("active")) for each in job.replicas),
        wanted=sum(each.pods for each in job.pod_sets({})),
        restarts=job.restarts({}),
        created=job.metadata["creationTimestamp"],
        started=job.status.get("startTime"),
        ended=job.ended or None,
        goes_on=job.outcome is None and state != SUSPENDED,
        progress=None,
    )


def _seconds(since: str, until: datetime) -> float:
    return (until - _time(since)).total_seconds()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


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
        cells = _cells(job_row(job, pods_by_job.get(key, ()), jobset_of.get(key)), now)
        rows.append((job.namespace, *cells) if namespaces else cells)
    return aligned(rows)


def _cells(row: JobRow, now: datetime) -> tuple[str, ...]:
    duration = row.duration(now)
    return (
        row.kind,
        row.name,
        row.state,
        nodes_text(row),
        str(row.restarts),
        human_duration(row.age(now)),
        UNKNOWN if duration is None else human_duration(duration),
    )


def nodes_text(row: JobRow) -> str:
    """Write how many nodes there are of those wanted; of a job that has ended none are, whatever became of it."""
    wanted = UNKNOWN if row.wanted is None else str(row.wanted)
    return wanted if row.has_ended else f"{row.nodes}/{wanted}"


def human_duration(seconds: float) -> str:
    """Write a duration as kubectl does, in less detail the longer it is: `119s`, `2m5s`, `3h20m`, `5d1h`, `40d`."""
    whole = max(0, int(seconds))
    for name, unit, least, part_name, part, parts_below in _UNITS:
        if whole >= least * unit:
            number, rest = divmod(whole, unit)
            shown = rest // part if number < parts_below else 0
            return f"{number}{name}" + (f"{shown}{part_name}" if shown else "")
    return f"{whole}s"
