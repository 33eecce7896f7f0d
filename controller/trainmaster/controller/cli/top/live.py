"""The live view on a terminal, until somebody leaves it.

- It takes the other screen of the terminal, so that what was there before is there again afterwards, whatever ends it.
- What changes is drawn twice a second at most, and less often if that takes long.
- As many jobs are shown as there is room for, and the nodes below them; the others are counted. No row is wider than
  the terminal: columns that matter least go first, and texts are cut.
- What others write to standard error meanwhile comes after the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from trainmaster.controller.cli.follow.terminal import (
    BEGIN_UPDATE,
    END_UPDATE,
    ERASE_BELOW,
    ERASE_LINE,
    HIDE_CURSOR,
    NO_WRAP,
    RESET_COLOURS,
    SHOW_CURSOR,
    WRAP,
    HeldTerminal,
    redirected_stderr,
)
from trainmaster.controller.cli.jobs.rows import UNKNOWN, JobRow
from trainmaster.controller.cli.output import marked
from trainmaster.controller.cli.printers import INTERRUPTED
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

_HOME: Final = "\x1b[H"
_OTHER_SCREEN: Final = "\x1b[?1049h"
_OWN_SCREEN: Final = "\x1b[?1049l"
_INTERVAL: Final = 0.5
_CLOCK: Final = 1.0
"""Seconds after which it is drawn in any case: ages grow."""

_SHARE: Final = 0.25
"""Of the time, that drawing may take."""


_STYLES: Final = {
    Attention.TROUBLED: "yellow",
    Attention.FAILED_LATELY: "bold red",
    Attention.FAILED: "red",
    Attention.RUNNING: "cyan",
    Attention.COMPLETE: "green",
}
_LEAST_FOR_NODES: Final = 20
"""Lines of a terminal, for a table of nodes."""

_LEAST_JOBS: Final = 3
_LEAST_WIDTHS: Final = {
    "KIND": 110,
    "LEFT": 100,
    "RESTARTS": 90,
    "PROGRESS": 80,
    "AGE": 70,
    "NAMESPACE": 60,
    "NODES": 50,
}
"""Columns of a terminal, from which on there is this one of the table."""

_FOOT: Final = "q quit   --sort and --filter choose jobs   trainmaster explain JOB says more"

Look = Callable[[], Awaitable[tuple[Snapshot, Sequence[JobRow]]]]
"""Returns what is known of the cluster, and its jobs in their order."""


class LiveView:
    """The live view."""

    def __init__(self, look: Look, changed: asyncio.Event, *, file: TextIO) -> None:
        self._look = look
        self._changed = changed
        self._file = file
        self._terminal = HeldTerminal(
            file,
            begin=f"{_OTHER_SCREEN}{HIDE_CURSOR}",
            end=f"{END_UPDATE}{WRAP}{RESET_COLOURS}{_HOME}{ERASE_BELOW}{SHOW_CURSOR}{_OWN_SCREEN}",
            reads_keys=True,
            on_return=self._draw_again,
        )
        self._seen: tuple[Snapshot, Sequence[JobRow]] | None = None
        self._drawn = ""
        self._left = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        """Show it until somebody leaves; returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._leave, INTERRUPTED)
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        # Where standard input is something else, keys come from the terminal all the same.
        keys = sys.stdin.fileno() if sys.stdin.isatty() else self._file.fileno()
        loop.add_reader(keys, self._read_keys, keys)
        told = io.StringIO()
        try:
            with redirected_stderr(told), self._terminal:
                while not self._left.is_set():
                    began = time.monotonic()
                    self._changed.clear()
                    self._seen = await self._look()
                    self._draw()
                    await self._wait(max(_INTERVAL, (time.monotonic() - began) / _SHARE))
            return self._code
        finally:
            sys.stderr.write(told.getvalue())
            loop.remove_reader(keys)
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_signal_handler(signal.SIGINT)

    async def _wait(self, interval: float) -> None:
        """Wait until it is worth while to look again."""
        for event, seconds in ((self._left, interval), (self._changed, _CLOCK - interval)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, seconds)):
                    await event.wait()
                    return

    def _leave(self, code: int) -> None:
        self._code = code
        self._left.set()
        self._changed.set()

    def _read_keys(self, file: int) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(file, 1024)
        if not data:
            asyncio.get_running_loop().remove_reader(file)  # nobody presses keys any more
        elif b"q" in data and self._terminal.has_keys:
            self._leave(0)

    def _draw(self) -> None:
        if self._seen is None or not self._terminal.is_open:
            return
        size = self._terminal.size
        console = Console(file=self._file, width=size.columns, height=size.lines, highlight=False, emoji=False)
        with console.capture() as capture:
            print_screen(console, *self._seen)
        drawn = f"{ERASE_LINE}\r\n".join(capture.get().splitlines()[: size.lines])
        if drawn != self._drawn:
            self._drawn = drawn
            self._draw_again()

    def _draw_again(self) -> None:
        """Draw the same, in the handler of a signal perhaps, which may have come while the next rows are made."""
        self._terminal.send(
            f"{BEGIN_UPDATE}{RESET_COLOURS}{NO_WRAP}{_HOME}{self._drawn}{ERASE_LINE}{ERASE_BELOW}{WRAP}{END_UPDATE}"
        )


def print_screen(console: Console, snapshot: Snapshot, jobs: Sequence[JobRow]) -> None:
    """Fill a terminal with what is known; where there is little room, a row for a job stays."""
    for each in _parts(snapshot, jobs, columns=console.width, lines=console.height):
        console.print(each, no_wrap=True, overflow="ellipsis", crop=True)


def _parts(snapshot: Snapshot, jobs: Sequence[JobRow], *, columns: int, lines: int) -> Iterator[RenderableType]:
    nodes = node_rows(snapshot)[1:] if lines >= _LEAST_FOR_NODES else []
    shown_nodes = nodes if len(nodes) <= lines // 4 else nodes[: lines // 4 - 1]
    for_nodes = len(shown_nodes) + 1 + (len(nodes) > len(shown_nodes)) if nodes else 0
    head = list(head_lines(snapshot))[: max(1, lines - for_nodes - _LEAST_JOBS)]
    room = max(1, lines - len(head) - for_nodes - 2)
    at_most = room if len(jobs) <= room else max(1, room - 1)
    yield from (_text(line, "" if is_well else "yellow") for line, is_well in head)
    if jobs:
        yield _job_table(snapshot, jobs[:at_most], columns)
        yield from (_text(line, "dim") for line in more_jobs(snapshot, jobs, at_most) if at_most < room)
    else:
        yield _text(_no_jobs(snapshot), "dim")
    yield from [""] * (room - len(jobs) if jobs else room)
    if nodes:
        yield _table(node_rows(snapshot)[0], [[_text(cell) for cell in row] for row in shown_nodes])
        yield from (_text(line, "dim") for line in more_nodes(snapshot, len(shown_nodes)))
    yield _text(_FOOT if snapshot.is_complete else f"reading   {_FOOT}", "dim")


def _no_jobs(snapshot: Snapshot) -> str:
    if not snapshot.is_complete:
        return "reading jobs"
    if snapshot.jobs:
        return "no job matches --filter"
    where = "" if snapshot.namespace is None else f" in namespace {snapshot.namespace}; -A shows all namespaces"
    return f"no jobs{where}"


def _job_table(snapshot: Snapshot, jobs: Sequence[JobRow], columns: int) -> Table:
    rows = [job_cells(job, snapshot) for job in jobs]
    kept = [
        index
        for index, header in enumerate(JOB_HEADER)
        if columns >= _LEAST_WIDTHS.get(header, 0)
        and (header != "NAMESPACE" or snapshot.namespace is None)
        # What there is nothing to tell of, or the same of all.
        and {row[index] for row in rows} - ({TRAINJOB_KIND} if header == "KIND" else {UNKNOWN})
    ]
    styles = [_STYLES.get(attention(job, snapshot.now), "") for job in jobs]
    cells = [[_text(row[index], style) for index in kept] for row, style in zip(rows, styles, strict=True)]
    return _table([JOB_HEADER[index] for index in kept], cells)


def _table(header: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in header:
        # Names and causes are cut where there is no room; the others are short.
        table.add_column(name, no_wrap=name not in {"NAME", "CAUSE", "NODE"})
    for row in rows:
        table.add_row(*row)
    return table


def _text(text: str, style: str = "") -> Text:
    return Text(marked(text), style=style, no_wrap=True, overflow="ellipsis")
