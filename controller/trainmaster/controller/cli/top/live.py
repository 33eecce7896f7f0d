"""The live view on a terminal: the jobs for which there is room, and the fullest nodes, until Ctrl-C.

Columns that tell nothing of any job are left out, and texts are cut where there is no room. While the cluster is away,
what was known stays. What others write to standard error meanwhile comes after the end.
"""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table

from trainmaster.controller.cli.display import cell, drawing, table, terminal_console
from trainmaster.controller.cli.jobs.rows import UNKNOWN, JobRow
from trainmaster.controller.cli.top.attention import Attention, attention
from trainmaster.controller.cli.top.snapshot import (
    JOB_HEADER,
    Snapshot,
    head_lines,
    job_cells,
    more_jobs,
    more_nodes,
    no_jobs,
    node_rows,
)
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.runtime.api.constants import TRAINJOB_KIND

_INTERVAL: Final = 2.0
_SHARE: Final = 0.2
"""Of the time, that reading may take: of a large cluster less is asked."""

_STYLES: Final = {
    Attention.TROUBLED: "yellow",
    Attention.FAILED_LATELY: "bold red",
    Attention.FAILED: "red",
    Attention.RUNNING: "cyan",
    Attention.COMPLETE: "green",
}
_FOOT: Final = "Ctrl-C quits   --sort and --filter choose jobs   trainmaster explain JOB says more"

Read = Callable[[], Awaitable[Snapshot]]
Choose = Callable[[Snapshot], Sequence[JobRow]]
"""Returns the jobs that are shown, in their order."""


async def show(snapshot: Snapshot, read: Read, choose: Choose) -> None:
    """Show a snapshot, and later ones, until cancelled."""
    console, told = terminal_console(), io.StringIO()
    live = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    try:
        with drawing(told), live:
            took = 0.0
            while True:
                live.update(view(snapshot, choose(snapshot), lines=console.height), refresh=True)
                await asyncio.sleep(max(_INTERVAL, took / _SHARE))
                began = time.monotonic()
                try:
                    snapshot = await read()
                except KubeError as error:
                    snapshot = replace(snapshot, now=datetime.now(UTC), outage=str(error))
                took = time.monotonic() - began
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
        _job_table(snapshot, shown) if shown else cell(no_jobs(snapshot), "dim"),
        *(cell(line, "dim") for line in more_jobs(snapshot, jobs, room)),
        *(_node_table(snapshot, nodes) if len(nodes) > 1 else ()),
        cell(_FOOT, "dim"),
    )


def _job_table(snapshot: Snapshot, jobs: Sequence[JobRow]) -> Table:
    rows: list[tuple[Sequence[str], str]] = [(JOB_HEADER, "bold")]
    rows += [(job_cells(job, snapshot), _STYLES.get(attention(job, snapshot.now), "")) for job in jobs]
    kept = [
        index
        for index, header in enumerate(JOB_HEADER)
        if (header != "NAMESPACE" or snapshot.namespace is None)
        and {row[index] for row, _ in rows[1:]} - ({TRAINJOB_KIND} if header == "KIND" else {"", UNKNOWN})
    ]
    return table([cell(row[index], style) for index in kept] for row, style in rows)


def _node_table(snapshot: Snapshot, rows: Sequence[Sequence[str]]) -> Iterator[RenderableType]:
    yield table([cell(text, "" if index else "bold") for text in row] for index, row in enumerate(rows))
    yield from (cell(line, "dim") for line in more_nodes(snapshot, len(rows) - 1))
