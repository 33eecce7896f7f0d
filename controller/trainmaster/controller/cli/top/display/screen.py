"""The live view of a cluster for a terminal of any size; pure.

- At the top stand what is known of all: the jobs by what they need, the managers, the nodes, and what cannot be read.
  Below them come the jobs, as many as there is room for, and the nodes, and in the last row the keys.
- Where there is little room, the nodes go first, then what is known of all; a row for a job stays.
- No row is wider than the terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from trainmaster.controller.cli.follow.display.durations import clock
from trainmaster.controller.cli.follow.display.frame import Glyphs
from trainmaster.controller.cli.jobs.table import UNKNOWN, human_duration, nodes_text
from trainmaster.controller.cli.top.cluster.attention import Attention, TopJob, attention
from trainmaster.controller.cli.top.cluster.node_usage import CPU, MEMORY, NodeUsage, total
from trainmaster.controller.cli.top.cluster.snapshot import Snapshot
from trainmaster.controller.cli.top.display.columns import Column, laid_out
from trainmaster.controller.cli.top.display.overview import (
    job_counts,
    manager_lines,
    node_line,
    outage_line,
    percents,
    title,
    unread_lines,
)
from trainmaster.controller.cli.top.display.window import Window
from trainmaster.runtime.api.constants import TRAINJOB_KIND

_STYLES: Final = {
    Attention.TROUBLED: "yellow",
    Attention.FAILED_LATELY: "bold red",
    Attention.FAILED: "red",
    Attention.RUNNING: "cyan",
    Attention.COMPLETE: "green",
}
_BAR: Final = 10
_LEAST_FOR_NODES: Final = 20
"""Lines of a terminal, for a table of nodes."""

_LEAST_JOBS: Final = 3
"""Rows for jobs, before anything else is shown but the title."""

_JOB_COLUMNS: Final = (
    Column(" ", keep=20),
    Column("NAMESPACE", keep=12, at_most=30, at_least=9),
    Column("NAME", keep=20, at_most=50, at_least=16),
    Column("KIND", keep=1),
    Column("STATE", keep=15),
    Column("NODES", keep=9, right=True),
    Column("PROGRESS", keep=8),
    Column("LEFT", keep=7, right=True),
    Column("RESTARTS", keep=4, right=True),
    Column("AGE", keep=5, right=True),
    Column("CAUSE", keep=10, at_least=12),
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked of the user in the last row; what has been typed so far."""

    text: str


def screen(
    snapshot: Snapshot,
    window: Window,
    *,
    columns: int,
    lines: int,
    glyphs: Glyphs,
    prompt: Prompt | None = None,
) -> list[Text]:
    """Return the rows of the view, never more than the terminal has.

    Args:
        snapshot: What is known.
        window: Which of the jobs are shown, and which one is selected; it is moved so that this one is seen.
        columns: Width of the terminal.
        lines: Height of the terminal.
        glyphs: What to draw with.
        prompt: What is being typed.
    """
    foot = _foot(window, snapshot, prompt)
    # The header of the jobs and the keys stand in any case, as far as there are rows at all.
    room = max(lines - 2, 0)
    nodes = _nodes(snapshot, columns, lines // 4) if lines >= _LEAST_FOR_NODES else []
    head = _head(snapshot, max(1, room - len(nodes) - _LEAST_JOBS))
    shown = max(0, room - len(head) - len(nodes))
    jobs = window.shown(max(1, shown))
    table = _jobs(snapshot, jobs, window, columns, glyphs)
    blank = max(0, shown - len(jobs))
    rows = [*head, *table, *[Text() for _ in range(blank)], *nodes, foot]
    rows = rows[:lines] if lines > 1 else rows[:1]
    for row in rows:
        row.truncate(columns, overflow="ellipsis")
    return rows


def _head(snapshot: Snapshot, at_most: int) -> list[Text]:
    """What is known of all; of what there is no room for, that goes first which matters least."""
    rows = [(4, Text(title(snapshot), style="bold"))]
    if outage := outage_line(snapshot):
        rows.append((6, Text(outage, style="bold red")))
    rows.append((5, _label("jobs", job_counts(snapshot))))
    rows += [
        (2 if is_well else 3, _label("manager", line, "" if is_well else "yellow"))
        for line, is_well in manager_lines(snapshot)
    ]
    rows.append((1, _label("nodes", node_line(snapshot))))
    rows += [(0, Text(line, style="yellow")) for line in unread_lines(snapshot)]
    while len(rows) > at_most:
        least = min(range(len(rows)), key=lambda index: (rows[index][0], -index))
        del rows[least]
    return [row for _, row in rows]


def _label(name: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"{name:8} ", "dim"), (text, style))


def _foot(window: Window, snapshot: Snapshot, prompt: Prompt | None) -> Text:
    if prompt is not None:
        return Text(f"filter: {prompt.text}_   enter: keep   esc: all jobs", style="reverse")
    where = "" if window.count == 0 else f"{window.selected + 1}/{window.count}"
    if not snapshot.is_complete:
        where = f"{where} reading".strip()
    parts = [
        where,
        "q quit",
        "enter explain",
        f"s sort: {window.order}",
        "/ filter" + (f": {window.filter}" if window.filter else ""),
    ]
    return Text("   ".join(part for part in parts if part), style="dim")


def _jobs(snapshot: Snapshot, jobs: Sequence[TopJob], window: Window, columns: int, glyphs: Glyphs) -> list[Text]:
    if not window.count:
        where = "" if snapshot.namespace is None else f" in namespace {snapshot.namespace}; -A shows all namespaces"
        text = f"no jobs match {window.filter!r}" if window.filter else f"no jobs{where}"
        return [Text(text if snapshot.is_complete else "reading jobs", style="dim")]
    missing = _untold(snapshot)
    kept = [index for index, column in enumerate(_JOB_COLUMNS) if column.header not in missing]
    rows = [_cells(job, snapshot, glyphs, is_selected=job.key == window.selected_key) for job in jobs]
    lines = laid_out([_JOB_COLUMNS[index] for index in kept], [[row[index] for index in kept] for row in rows], columns)
    lines[0].stylize("bold")
    for job, line in zip(jobs, lines[1:], strict=True):
        if job.key == window.selected_key:
            line.pad_right(max(0, columns - len(line)))
            line.stylize("reverse")
    return lines


def _untold(snapshot: Snapshot) -> set[str]:
    """Return the columns in which there would be nothing, or the same for all."""
    progress = [job.row.progress for job in snapshot.jobs if job.row.progress is not None]
    return {
        name
        for name, is_told in (
            ("NAMESPACE", snapshot.namespace is None),
            ("KIND", any(job.row.kind != TRAINJOB_KIND for job in snapshot.jobs)),
            ("PROGRESS", any(each.percentage is not None for each in progress)),
            ("LEFT", any(each.remaining_seconds is not None for each in progress)),
        )
        if not is_told
    }


def _cells(job: TopJob, snapshot: Snapshot, glyphs: Glyphs, *, is_selected: bool) -> list[Text]:
    row, rank = job.row, attention(job, snapshot.now)
    style = _STYLES.get(rank, "")
    trouble = job.trouble
    cause = "" if trouble is None else ": ".join(each for each in (trouble.cause, trouble.text) if each)
    remaining = None if row.progress is None or row.has_ended else row.progress.remaining_seconds
    return [
        Text(">" if is_selected else _mark(rank, glyphs), style=style),
        Text(row.namespace),
        Text(row.name, style="bold"),
        Text(row.kind),
        Text(row.state, style=style),
        Text(nodes_text(row)),
        _progress(job, glyphs),
        Text("" if remaining is None else clock(remaining)),
        Text(str(row.restarts), style="yellow" if row.restarts else ""),
        Text(human_duration(row.age(snapshot.now))),
        Text(cause, style=style if rank in {Attention.TROUBLED, Attention.FAILED_LATELY} else ""),
    ]


def _mark(rank: Attention, glyphs: Glyphs) -> str:
    match rank:
        case Attention.TROUBLED:
            return glyphs.attention
        case Attention.FAILED_LATELY | Attention.FAILED:
            return glyphs.wrong
        case Attention.COMPLETE:
            return glyphs.done
        case Attention.RUNNING:
            return " "
    return glyphs.waiting


def _progress(job: TopJob, glyphs: Glyphs) -> Text:
    progress = job.row.progress
    if progress is None or progress.percentage is None:
        return Text()
    filled = min(max(progress.percentage, 0), 100) * _BAR // 100
    bar = (glyphs.bar * filled, "cyan"), (glyphs.rest * (_BAR - filled), "dim")
    return Text.assemble(*bar, f" {progress.percentage:3}%")


def _nodes(snapshot: Snapshot, columns: int, at_most: int) -> list[Text]:
    """The nodes that need attention first, then the fullest; the last row counts those for which there is no room."""
    nodes = sorted(snapshot.nodes or (), key=lambda node: (node.is_ready, -node.fullness, node.name))
    room = at_most - 1
    if not nodes or room < 1:
        return []
    shown = nodes if len(nodes) <= room else nodes[: room - 1]
    rest = nodes[len(shown) :]
    accelerators = total(nodes).accelerators
    resources = (CPU, MEMORY, *accelerators)
    names = [Column("NODE", keep=20, at_most=40, at_least=12), Column("STATUS", keep=15)]
    amounts = [Column(each.upper(), keep=14 - index, right=True) for index, each in enumerate(resources)]
    rows = [[Text(node.name), _node_status(node), *(_amount(node, each) for each in resources)] for node in shown]
    lines = laid_out([*names, *amounts], rows, columns)
    lines[0].stylize("bold")
    if rest:
        statuses = Counter(node.status for node in rest)
        listed = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
        lines.append(Text(f"and {len(rest)} more nodes: {listed}", style="dim"))
    return lines


def _node_status(node: NodeUsage) -> Text:
    return Text(node.status, style="" if node.is_ready else "yellow")


def _amount(node: NodeUsage, resource: str) -> Text:
    text = percents(node, resource)
    return Text(text or UNKNOWN, style="bold" if node.share(resource) >= 1 else "")
