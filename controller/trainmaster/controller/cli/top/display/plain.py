"""A cluster as plain lines, for files, pipes, and terminals on which nothing can be drawn over; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from trainmaster.controller.cli.follow.display.durations import clock
from trainmaster.controller.cli.jobs.table import UNKNOWN, human_duration, nodes_text
from trainmaster.controller.cli.printers import aligned
from trainmaster.controller.cli.top.cluster.attention import TopJob, attention
from trainmaster.controller.cli.top.cluster.node_usage import CPU, MEMORY, total
from trainmaster.controller.cli.top.cluster.snapshot import Snapshot
from trainmaster.controller.cli.top.display.overview import (
    job_counts,
    manager_lines,
    node_line,
    outage_line,
    percents,
    title,
    unread_lines,
)

_HEADER: Final = ("KIND", "NAME", "STATE", "NODES", "PROGRESS", "LEFT", "RESTARTS", "AGE", "CAUSE")


def plain_lines(snapshot: Snapshot, jobs: Sequence[TopJob], *, at_most: int | None) -> Iterator[str]:
    """Yield the lines.

    Args:
        snapshot: What is known.
        jobs: The jobs in their order.
        at_most: Of how many jobs, and nodes, there is a line; others are counted. None: of all.
    """
    yield title(snapshot)
    if outage := outage_line(snapshot):
        yield outage
    yield f"jobs     {job_counts(snapshot)}"
    for line, _ in manager_lines(snapshot):
        yield f"manager  {line}"
    yield f"nodes    {node_line(snapshot)}"
    yield from unread_lines(snapshot)
    if jobs:
        yield ""
        yield from _jobs(snapshot, jobs, at_most)
    if snapshot.nodes:
        yield ""
        yield from _nodes(snapshot, at_most)


def _jobs(snapshot: Snapshot, jobs: Sequence[TopJob], at_most: int | None) -> Iterator[str]:
    has_namespace = snapshot.namespace is None
    rows: list[tuple[str, ...]] = [("NAMESPACE", *_HEADER) if has_namespace else _HEADER]
    for job in jobs[:at_most]:
        cells = _cells(job, snapshot)
        rows.append((job.row.namespace, *cells) if has_namespace else cells)
    yield from aligned(rows)
    if at_most is not None and (rest := jobs[at_most:]):
        counts = Counter(attention(job, snapshot.now) for job in rest)
        yield f"and {len(rest)} more: " + ", ".join(f"{counts[each]} {each.word}" for each in sorted(counts))


def _cells(job: TopJob, snapshot: Snapshot) -> tuple[str, ...]:
    row, trouble, progress = job.row, job.trouble, job.row.progress
    percentage = None if progress is None else progress.percentage
    remaining = None if progress is None or row.has_ended else progress.remaining_seconds
    return (
        row.kind,
        row.name,
        row.state,
        nodes_text(row),
        UNKNOWN if percentage is None else f"{percentage}%",
        UNKNOWN if remaining is None else clock(remaining),
        str(row.restarts),
        human_duration(row.age(snapshot.now)),
        "" if trouble is None else ": ".join(each for each in (trouble.cause, trouble.text) if each),
    )


def _nodes(snapshot: Snapshot, at_most: int | None) -> Iterator[str]:
    nodes = sorted(snapshot.nodes or (), key=lambda node: (node.is_ready, -node.fullness, node.name))
    resources = (CPU, MEMORY, *total(nodes).accelerators)
    rows = [("NODE", "STATUS", *(each.upper() for each in resources))]
    rows += [
        (node.name, node.status, *(percents(node, each) or UNKNOWN for each in resources)) for node in nodes[:at_most]
    ]
    yield from aligned(rows)
    if at_most is not None and (rest := nodes[at_most:]):
        yield f"and {len(rest)} more nodes"
