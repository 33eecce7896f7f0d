"""The live display of followed jobs at the bottom of a terminal, above which scrolls by what they print.

- Each job has a row, with its progress and its ranks; below stands what is wrong. The display takes half of the lines
  of the terminal at most, and counts the jobs for which there is no room.
- What arrives is printed with the next drawing: to draw the display for every line would take longer than the lines.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Final, Self, TextIO, cast

from rich.console import Group, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment, Segments
from rich.text import Text

from trainmaster.controller.cli.display import cell, drawing, table, terminal_console
from trainmaster.controller.cli.follow.failures import Failure, attempt_of, without_verdict
from trainmaster.controller.cli.follow.job_status import DELETED, GOOD, UNKNOWN, JobStatus
from trainmaster.controller.cli.follow.progress import LogProgress
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.cli.follow.summary import Commands, Kind, clock, closing_summary, rank_groups, summary
from trainmaster.controller.cli.output import GuardedOutput, marked, one_line, plain, printable_lines
from trainmaster.controller.cli.printers import counted
from trainmaster.controller.conditions import BLOCKED, CONTAINER_FAILED, WAITING
from trainmaster.controller.kube.clock import seconds_between
from trainmaster.runtime.api.constants import COMPLETE, FAILED, SUSPENDED
from trainmaster.runtime.jobs.constants import SUCCEEDED

_INTERVAL: Final = 0.2
_BAR: Final = 10
_READ_AT_ONCE: Final = 200
"""Lines that are read for progress; whoever prints more of them at once prints another counter soon."""

_STATES: Final = {
    COMPLETE: "green",
    SUCCEEDED: "green",
    FAILED: "bold red",
    DELETED: "red",
    "Running": "cyan",
    BLOCKED: "yellow",
    SUSPENDED: "yellow",
    UNKNOWN: "yellow",
    CONTAINER_FAILED: "yellow",
}
_STYLES: Final[dict[Kind, str]] = {"plain": "", "good": "bold green", "bad": "bold red", "quiet": "dim"}


class LiveReporter(Reporter):
    """Keeps a display at the bottom of a terminal; to be used in a running event loop."""

    is_mixed = True

    def __init__(self, commands: Commands | None = None, *, file: TextIO | None = None) -> None:
        super().__init__(commands)
        self._attempts: dict[str, Attempt] = {}
        """By key of the job."""

        self._console = terminal_console(file)
        self._live = Live(
            console=self._console,
            get_renderable=self._display,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,  # it would leave out the guard
        )
        self._exits = ExitStack()
        self._timer: asyncio.TimerHandle | None = None
        self._written: list[RenderableType] = []

    def __enter__(self) -> Self:
        self._exits.enter_context(self._live)
        stderr = FileProxy(self._console, sys.stderr)
        self._exits.callback(stderr.flush)
        self._exits.enter_context(drawing(cast("TextIO", GuardedOutput(cast("TextIO", stderr)))))
        self._tick()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._print_written()
        self._exits.close()

    def report(self, text: str, *, bad: bool = False) -> None:
        """Print above the display."""
        self._print(text, "bold red" if bad else "dim")

    def log(self, lines: Sequence[str], *, job: str = "") -> None:
        """Print above the display, with the colours that the job chose; of a progress bar only its last state."""
        self._written.append(Segments([Segment(printable_lines("".join(f"{line}\n" for line in lines)))]))
        if attempt := self._attempts.get(job):
            for line in lines[-_READ_AT_ONCE:]:
                attempt.progress.feed(line, time.monotonic())

    def partial(self, text: str, *, job: str = "") -> None:
        """Show a line that is not ended in the display."""
        if attempt := self._attempts.get(job):
            attempt.partial = text
            attempt.progress.feed(text, time.monotonic())

    def show(self, jobs: Iterable[JobStatus]) -> None:
        """Show these jobs from the next drawing on."""
        for status in jobs:
            before = self._attempts.get(status.job.key)
            if before is None or before.restarts != status.restarts:
                self._attempts[status.job.key] = Attempt(status)

    def close(self, jobs: Iterable[JobStatus]) -> None:
        """Take the display away, and sum up."""
        self.__exit__()
        for line in closing_summary(list(jobs), self.commands):
            self._print(line.text, _STYLES[line.kind])

    def _print(self, text: str, style: str) -> None:
        self._written.append(Text("\n".join(marked(plain(line)) for line in text.split("\n")), style=style))
        if not self._live.is_started:
            self._print_written()

    def _print_written(self) -> None:
        if self._written:
            self._console.print(*self._written, sep="\n", soft_wrap=True)
            self._written.clear()

    def _tick(self) -> None:
        with self._console:  # in one piece
            self._print_written()
            self._live.refresh()
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._tick)

    def _display(self) -> RenderableType:
        return display(list(self._attempts.values()), lines=self._console.height)


class Attempt:
    """An attempt of a job, and what its log has told so far."""

    def __init__(self, status: JobStatus) -> None:
        self.status = status
        self.restarts = status.restarts
        self.progress = LogProgress()
        self.partial = ""
        """The last line of its log, while that is not ended."""


def display(attempts: Sequence[Attempt], *, lines: int, now: float | None = None) -> Group:
    """Return the display for a terminal of so many lines; `now` is a time of the clock that progress is fed with."""
    room = max(2, lines // 2)
    ordered = sorted(attempts, key=lambda each: _importance(each.status))
    shown = ordered if len(ordered) <= room else ordered[: room - 1]
    partial = [cell(plain(each.partial)) for each in shown if each.partial]
    problems = [row for each in shown for row in _problems(each.status, is_named=len(attempts) > 1)]
    rest = Counter(each.status.state for each in ordered[len(shown) :])
    more = ", ".join(f"{count} {state}" for state, count in rest.most_common())
    beside = room - len(shown) - bool(rest)
    return Group(
        *partial[:beside],
        table(_without_empty_columns([_row(each, time.monotonic() if now is None else now) for each in shown])),
        *([cell(f"and {rest.total()} more: {more}", "dim")] if rest else []),
        *problems[: beside - len(partial[:beside])],
    )


def _importance(status: JobStatus) -> int:
    """Sort jobs: those that go on, those that wait, those that failed, those that did well."""
    if status.outcome is not None:
        return 3 if status.outcome in GOOD else 2
    return int(status.state == WAITING and not status.failures)


def _without_empty_columns(rows: Sequence[Sequence[RenderableType]]) -> Iterable[Sequence[RenderableType]]:
    return zip(*(column for column in zip(*rows, strict=True) if any(column)), strict=True)


def _row(attempt: Attempt, now: float) -> Sequence[RenderableType]:
    status = attempt.status
    elapsed = seconds_between(status.began, status.ended or datetime.now(UTC))
    cells = [
        cell(status.job.name, "bold"),
        cell(status.state, _STATES.get(status.state, "")),
        cell("" if elapsed is None else clock(elapsed), "dim"),
    ]
    restarts = counted(attempt.restarts, "restart") if attempt.restarts else ""
    if status.outcome is not None:
        return [*cells, "", "", "", cell(restarts)]
    # What the training reports of itself counts more than what its log tells.
    fraction, remaining = attempt.progress.fraction, attempt.progress.remaining(now)
    reported = status.progress
    if reported is not None and reported.percentage is not None:
        fraction, remaining = min(1.0, max(0.0, reported.percentage / 100)), reported.remaining_seconds
    left = "" if remaining is None else f"{clock(remaining)} left"
    metrics = [] if reported is None else [f"{name} {value}" for name, value in reported.metrics.items()]
    return [
        *cells,
        "" if fraction is None else ProgressBar(1.0, fraction, _BAR, complete_style="cyan", finished_style="cyan"),
        cell("" if fraction is None else f"{int(fraction * 100 + 1e-9)}%", "bold"),
        cell(summary(rank_groups(status))),
        cell("  ".join(filter(None, (restarts, left, attempt.progress.what, *metrics)))),
    ]


def _problems(status: JobStatus, *, is_named: bool) -> Iterator[Text]:
    """Yield what stands in the way of a job, a row each."""
    name = f"{status.job.name}: " if is_named else ""
    if status.unreachable and status.outcome is None:
        yield cell(f"! {name}the cluster does not answer: this may be out of date", "yellow")
    for kind, condition in status.conditions.items():
        if kind not in {*GOOD, FAILED} and not (kind == CONTAINER_FAILED and status.failures):
            yield cell(f"! {name}{one_line(condition.get('message') or condition.get('reason') or kind)}", "yellow")
    if status.outcome not in GOOD and (failures := status.last_failures):
        yield cell(f"! {name}{_told(failures[0], status.restarts)}", "red")


def _told(first: Failure, restarts: int) -> str:
    """Tell a failure in the words of its last line, which say more than its exit code."""
    failure = first.failure
    facts = f"exit code {failure.exit_code}" + (f", {attempt_of(failure)}" if restarts else "")
    said = next((one_line(line) for line in reversed(without_verdict(first.lines)) if line.strip()), "")
    return f"{first.who} failed: {said} ({facts})" if said else f"{first.who} failed: {facts}"
