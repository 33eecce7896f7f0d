"""The live view on a terminal: the jobs for which there is room, and the fullest nodes, until Ctrl-C.

Columns that tell nothing of any job are left out, and texts are cut where there is no room. What others write to
standard error meanwhile comes after the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table

from trainmaster.controller.cli.display import cell, redirected_stderr, terminal_console
from trainmaster.controller.cli.jobs.rows import UNKNOWN, JobRow
from trainmaster.controller.cli.top.job_table import Attention, attention
from trainmaster.controller.cli.top.snapshot import (
    JOB_HEADER,
    Snapshot,
    head_lines,
    job_cells,
    more_jobs,
    more_nodes,
    node_rows,
)
from trainmaster.runtime.api.constants import TRAINJOB_KIND

_AT_LEAST: Final = 0.5
_AT_MOST: Final = 1.0
"""Seconds between two drawings: ages grow even if nothing changes."""

_STYLES: Final = {
    Attention.TROUBLED: "yellow",
    Attention.FAILED_LATELY: "bold red",
    Attention.FAILED: "red",
    Attention.RUNNING: "cyan",
    Attention.COMPLETE: "green",
}
_FOOT: Final = "Ctrl-C quits   --sort and --filter choose jobs   trainmaster explain JOB says more"

Look = Callable[[], tuple[Snapshot, Sequence[JobRow]]]
"""Returns what is known of the cluster, and its jobs in their order."""


async def show(look: Look, changed: asyncio.Event) -> None:
    """Show it until cancelled."""
    console, told = terminal_console(), io.StringIO()
    try:
        live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        with redirected_stderr(told), live:
            while True:
                changed.clear()
                live.update(view(*look(), lines=console.height), refresh=True)
                await asyncio.sleep(_AT_LEAST)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_AT_MOST - _AT_LEAST):
                        await changed.wait()
    finally:
        sys.stderr.write(told.getvalue())


def view(snapshot: Snapshot, jobs: Sequence[JobRow], *, lines: int) -> Group:
    """Return what a terminal of so many lines shows; where there are few, some jobs stay."""
    nodes = node_rows(snapshot)[: lines // 4]
    head = list(head_lines(snapshot))
    room = max(3, lines - len(head) - len(nodes) - 4)
    shown = jobs[:room]
    return Group(
        *(cell(line, "" if is_well else "yellow") for line, is_well in head),
        _job_table(snapshot, shown) if shown else cell(_no_jobs(snapshot), "dim"),
        *(cell(line, "dim") for line in more_jobs(snapshot, jobs, room)),
        *(_node_table(snapshot, nodes) if len(nodes) > 1 else ()),
        cell(_FOOT if snapshot.is_complete else f"reading   {_FOOT}", "dim"),
    )


def _no_jobs(snapshot: Snapshot) -> str:
    if not snapshot.is_complete:
        return "reading jobs"
    if snapshot.jobs:
        return "no job matches --filter"
    where = "" if snapshot.namespace is None else f" in namespace {snapshot.namespace}; -A shows all namespaces"
    return f"no jobs{where}"


def _job_table(snapshot: Snapshot, jobs: Sequence[JobRow]) -> Table:
    rows = [(JOB_HEADER, "bold")]
    rows += [(job_cells(job, snapshot), _STYLES.get(attention(job, snapshot.now), "")) for job in jobs]
    kept = [
        index
        for index, header in enumerate(JOB_HEADER)
        if (header != "NAMESPACE" or snapshot.namespace is None)
        and {row[index] for row, _ in rows[1:]} - ({TRAINJOB_KIND} if header == "KIND" else {"", UNKNOWN})
    ]
    return _table([([row[index] for index in kept], style) for row, style in rows])


def _node_table(snapshot: Snapshot, rows: Sequence[Sequence[str]]) -> Iterator[RenderableType]:
    yield _table([(row, "" if index else "bold") for index, row in enumerate(rows)])
    yield from (cell(line, "dim") for line in more_nodes(snapshot, len(rows) - 1))


def _table(rows: Sequence[tuple[Sequence[str], str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for row, style in rows:
        table.add_row(*(cell(text, style) for text in row))
    return table
