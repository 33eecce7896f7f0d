"""The display of all jobs at the bottom of a terminal, above which scrolls by what they print."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.reconciling.problems import BLOCKED
from trainmaster.runtime.api.constants import COMPLETE

_STYLES = {COMPLETE: "green", "Failed": "bold red", "Deleted": "red", "Running": "cyan", BLOCKED: "yellow"}


class LiveReporter:
    """Keeps a display at the bottom of a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._started = time.monotonic()
        self._jobs: Sequence[JobStatus] = ()
        self._partial = ""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def report(self, text: str, *, bad: bool = False) -> None:
        """Print above the display."""
        self._console.print(Text(text, style="bold red" if bad else "dim"), soft_wrap=True)

    def log(self, lines: Sequence[str], *, job: str = "") -> None:  # noqa: ARG002 - no progress is read from them
        """Print above the display, with the colours that the job chose; of a progress bar only its last state."""
        for line in lines:
            self._console.print(Text.from_ansi(line.rpartition("\r")[2]), soft_wrap=True)

    def partial(self, text: str, *, job: str = "") -> None:  # noqa: ARG002 - there is one line for it
        """Draw the display anew, with this line above it."""
        self._partial = text.rstrip("\r").rpartition("\r")[2]
        self._draw()

    def show(self, jobs: Iterable[JobStatus]) -> None:
        """Draw the display anew."""
        self._jobs = list(jobs)
        self._draw()

    def close(self, jobs: Iterable[JobStatus]) -> None:  # noqa: ARG002 - nothing remains
        """Take the display away."""
        self._live.stop()

    def _draw(self) -> None:
        table = Table.grid(padding=(0, 2))
        for status in self._jobs:
            state = Text(status.state, style=_STYLES.get(status.state, ""))
            mark = Spinner("dots") if status.outcome is None else Text("●", style=_STYLES.get(status.state, ""))
            table.add_row(mark, Text(status.job.key), state, Text(status.pod_summary), _Elapsed(self._started))
        self._live.update(Group(Text.from_ansi(self._partial), table) if self._partial else table)


class _Elapsed:
    """The time since the start, drawn as it is at the moment of drawing."""

    def __init__(self, started: float) -> None:
        self._started = started

    def __rich__(self) -> Text:
        minutes, seconds = divmod(int(time.monotonic() - self._started), 60)
        return Text(f"{minutes}:{seconds:02}", style="dim")
