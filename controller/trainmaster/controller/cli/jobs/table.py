"""Jobs as rows of a table; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.rows import JobRow, job_row
from trainmaster.controller.cli.printers import aligned
from trainmaster.controller.container_failures import JOBSET_LABEL
from trainmaster.runtime.jsontree import JsonObject

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
