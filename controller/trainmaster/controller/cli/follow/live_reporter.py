"""The display of all jobs at the bottom of a terminal, above which scrolls by what they print.

What arrives is kept for a tenth of a second, or until it is much, and written in one piece with the display: a terminal
takes 100,000 lines as fast as it takes them without one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from io import StringIO
from typing import Final, Self, TextIO

from rich.console import Console
from rich.text import Text

from trainmaster.controller.cli.follow.frame import ASCII, UNICODE, Attempt, JobView, frame
from trainmaster.controller.cli.follow.job_status import JobStatus
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.cli.follow.summary import Commands, Kind, closing_summary
from trainmaster.controller.cli.follow.terminal import LiveRegion, redirected_stderr
from trainmaster.controller.cli.output import marked, plain, printable_lines

_INTERVAL: Final = 0.1
_WRITTEN_AT_ONCE: Final = 64 * 1024
"""Characters; a job that prints more than that between two drawings does not fill the memory."""

_SHOWN_OF_PARTIAL: Final = 2000
"""Characters; a bar that is drawn over and over is one long line."""

_STYLES: Final[dict[Kind, str]] = {"plain": "", "good": "bold green", "bad": "bold red", "quiet": "dim"}


class LiveReporter(Reporter):
    """Keeps a display at the bottom of a terminal; to be used in a running event loop."""

    is_mixed = True

    def __init__(self, file: TextIO | None = None, *, commands: Commands | None = None) -> None:
        super().__init__(commands)
        self._file = file or sys.stdout
        self._console = Console(file=self._file, highlight=False, emoji=False, markup=False)
        self._region = LiveRegion(self._file)
        # The console of Linux has 512 characters, of which these are none.
        is_known = self._file.encoding.lower().startswith("utf") and os.environ.get("TERM") != "linux"
        self._glyphs = UNICODE if is_known else ASCII
        self._exits = ExitStack()
        self._timer: asyncio.TimerHandle | None = None
        self._jobs: Sequence[JobStatus] = ()
        self._attempts: dict[str, Attempt] = {}
        self._written: list[str] = []
        self._waiting = 0
        self._rows: list[str] = []
        self._ticks = 0

    def __enter__(self) -> Self:
        self._exits.enter_context(self._region)
        stream = _Lines(self)  # what somebody writes to standard error comes above the display
        self._exits.callback(stream.close)
        self._exits.enter_context(redirected_stderr(stream))
        self._tick()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end()

    def report(self, text: str, *, bad: bool = False) -> None:
        """Print above the display."""
        self._put(self._lines(text, "bold red" if bad else "dim"))

    def log(self, lines: Sequence[str], *, job: str = "") -> None:
        """Print above the display, with the colours that the job chose; of a progress bar only its last state."""
        if lines:
            self._put(printable_lines("\n".join(lines) + "\n"))
            if attempt := self._attempts.get(job):
                attempt.take(lines)

    def partial(self, text: str, *, job: str = "") -> None:
        """Show a line that is not ended in the display."""
        if attempt := self._attempts.get(job):
            attempt.partial = text[-_SHOWN_OF_PARTIAL:]

    def show(self, jobs: Iterable[JobStatus]) -> None:
        """Show these jobs from the next drawing on."""
        self._jobs = list(jobs)
        for status in self._jobs:
            before = self._attempts.get(status.job.key)
            if before is None or before.restarts != status.restarts:
                self._attempts[status.job.key] = Attempt(status.restarts)
            else:
                before.forget_facts()

    def close(self, jobs: Iterable[JobStatus]) -> None:
        """Take the display away, and sum up."""
        summary = closing_summary(list(jobs), self.commands)
        self._put("".join(self._lines(line.text, _STYLES[line.kind]) for line in summary))
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._exits.close()
        self._flush()

    def _put(self, text: str) -> None:
        self._written.append(text)
        self._waiting += len(text)
        if self._waiting > _WRITTEN_AT_ONCE or self._timer is None:
            self._flush()

    def _flush(self) -> None:
        self._region.write("".join(self._written), self._rows)
        self._written.clear()
        self._waiting = 0

    def _tick(self) -> None:
        self._ticks += 1
        size = self._region.size
        views = self._views()
        rows = frame(views, columns=size.columns, lines=size.lines, tick=self._ticks, glyphs=self._glyphs)
        self._rows = self._styled(rows).splitlines()
        self._flush()
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._tick)

    def _views(self) -> list[JobView]:
        now, wall_clock = time.monotonic(), datetime.now(UTC)
        one_namespace = len({status.job.namespace for status in self._jobs}) <= 1
        return [
            self._attempts[status.job.key].view(
                status, status.job.name if one_namespace else status.job.key, now=now, wall_clock=wall_clock
            )
            for status in self._jobs
        ]

    def _lines(self, text: str, style: str) -> str:
        return self._styled([Text(plain(line), style=style) for line in text.split("\n")])

    def _styled(self, texts: Iterable[Text]) -> str:
        with self._console.capture() as capture:
            for text in texts:
                text.plain = marked(text.plain)
                self._console.print(text, soft_wrap=True)
        return capture.get()


class _Lines(StringIO):
    """A stream whose lines are reported."""

    def __init__(self, reporter: LiveReporter) -> None:
        super().__init__()
        self._reporter = reporter
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            self._reporter.report("\n".join(lines))
        return len(text)

    def close(self) -> None:
        """Report what no newline has ended."""
        if self._rest:
            self.write("\n")
        super().close()
