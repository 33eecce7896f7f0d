"""The rows of the live display, for any number of jobs and any size of a terminal; pure.

- A job has a row for its state, one for its progress, one for each group of its ranks, and one for each thing that is
  wrong. If there is no room for that, it has one row; jobs for which there is none either are counted in the last.
- What does not fit into a row is left out; nothing wraps.
- The display takes half of the terminal's lines at most: the other half is for the logs.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from trainmaster.controller.cli.follow.failures import Failure, attempt_of, without_verdict
from trainmaster.controller.cli.follow.job_status import DELETED, GOOD, UNKNOWN, JobStatus
from trainmaster.controller.cli.follow.progress import LogProgress, Pace
from trainmaster.controller.cli.follow.summary import RankGroup, clock, rank_groups, summary
from trainmaster.controller.cli.output import one_line, plain
from trainmaster.controller.conditions import BLOCKED, CONTAINER_FAILED, WAITING
from trainmaster.controller.kube.clock import seconds_between
from trainmaster.runtime.api.constants import COMPLETE, FAILED, SUSPENDED
from trainmaster.runtime.jobs.constants import SUCCEEDED

_STYLES: Final = {
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
_WIDE_BAR: Final = 24
_NARROW_BAR: Final = 10
_GAP: Final = "  "
_LEAST: Final = 10
"""Columns of what is cut."""

_READ_AT_ONCE: Final = 200
"""Lines that are read for progress between two looks; whoever prints more of them prints another counter soon."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What is drawn with; terminals differ in what they know."""

    spinner: str
    done: str
    wrong: str
    attention: str
    waiting: str
    bar: str
    rest: str
    ellipsis: str


UNICODE: Final = Glyphs("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "✓", "✗", "!", "·", "━", "─", "…")
ASCII: Final = Glyphs("|/-\\", "+", "x", "!", ".", "#", "-", "~")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is drawn of a job until something about it changes."""

    state: str
    outcome: str | None
    importance: int
    """Sorts jobs: those that go on, those that wait, those that failed, those that did well."""

    restarts: int
    wants_attention: bool
    groups: Sequence[RankGroup]
    problems: Sequence[tuple[str, str]]
    """What stands in its way, in a row each, with how it looks."""


def facts_of(status: JobStatus) -> JobFacts:
    """Return what is drawn of a job, which takes a look at all of its pods."""
    state, outcome = status.state, status.outcome
    waits = outcome is None and state == WAITING and not status.failures
    return JobFacts(
        state,
        outcome,
        importance=(1 if waits else 0) if outcome is None else 3 if outcome in GOOD else 2,
        restarts=status.restarts,
        wants_attention=state in {BLOCKED, UNKNOWN} or WAITING in status.conditions,
        groups=rank_groups(status),
        problems=_problems(status),
    )


@dataclass(frozen=True, slots=True)
class JobView:
    """What is shown of a job at a moment."""

    facts: JobFacts
    name: str
    elapsed: float | None = None
    """Seconds since it may run."""

    fraction: float | None = None
    """How much is done, from 0 to 1; None if that is unknown."""

    what: str = ""
    """Of what: an epoch, a loop; empty for all of it."""

    steps: str = ""
    """How far the innermost loop is."""

    remaining: float | None = None
    """Seconds; None if nobody knows."""

    metrics: Mapping[str, str] = field(default_factory=dict)
    partial: str = ""
    """The last line of its log, while that is not ended."""


class Attempt:
    """What the log of one attempt of a training has told so far."""

    def __init__(self, restarts: int = 0) -> None:
        self.restarts = restarts
        self.partial = ""
        self._facts: JobFacts | None = None
        self._unread: deque[str] = deque(maxlen=_READ_AT_ONCE)
        self._progress = LogProgress()
        self._pace = Pace()

    def forget_facts(self) -> None:
        """Take note that something about the job has changed."""
        self._facts = None

    def take(self, lines: Sequence[str]) -> None:
        """Take lines of the log."""
        self._unread.extend(lines[-_READ_AT_ONCE:])

    def _read(self, now: float) -> None:
        for line in (*self._unread, self.partial):
            self._progress.feed(line)
        self._unread.clear()
        if self._progress.fraction is not None and self._progress.is_whole:
            self._pace.observe(self._progress.fraction, now)

    def view(self, status: JobStatus, name: str, *, now: float, wall_clock: datetime) -> JobView:
        """Put together what is shown; what the training reports of itself counts more than what its log tells.

        `now` is in seconds of any clock, `wall_clock` the same moment by the clock of the server, or one near to it.
        """
        self._read(now)
        self._facts = self._facts or facts_of(status)
        elapsed = seconds_between(status.began, status.ended or wall_clock)
        told, reported = self._progress, status.progress
        metrics = reported.metrics if reported is not None else {}
        view = JobView(self._facts, name, elapsed=elapsed, metrics=metrics, partial=self.partial)
        if reported is not None and reported.percentage is not None:
            return replace(
                view,
                fraction=min(1.0, max(0.0, reported.percentage / 100)),
                what=told.what if told.is_whole else "",
                remaining=reported.remaining_seconds,
            )
        remaining = told.remaining
        if remaining is None and told.is_whole:
            remaining = self._pace.remaining(now)
        return replace(view, fraction=told.fraction, what=told.what, steps=told.steps, remaining=remaining)


def frame(views: Sequence[JobView], *, columns: int, lines: int, tick: int, glyphs: Glyphs = UNICODE) -> list[Text]:
    """Return the rows of the display.

    Rows are one column shorter than the terminal, since the last column makes some terminals wrap. `tick` counts the
    drawings, and moves what is to move.
    """
    width = max(1, columns - 1)
    painter = _Painter(width, tick, glyphs)
    room = max(1, lines // 2)
    full = [row for view in views for row in painter.full(view)]
    rows = full if len(full) <= room else painter.compact(views, room)
    for row in rows:
        row.truncate(width, overflow="ellipsis")
    return rows


class _Painter:
    def __init__(self, width: int, tick: int, glyphs: Glyphs) -> None:
        self._width = width
        self._tick = tick
        self._glyphs = glyphs

    def full(self, view: JobView) -> list[Text]:
        """A job in as many rows as it has to tell."""
        rows = [Text(plain(view.partial))] if view.partial else []
        rows.append(self._row(self._mark(view), [*self._head(view), _restarts(view)]))
        problems = [Text(f"  {self._glyphs.attention} {text}", style=style) for text, style in view.facts.problems]
        if view.facts.outcome is not None:
            return rows + problems
        if view.fraction is not None or view.metrics:
            metrics = [Text(f"{name} {value}", style="dim") for name, value in view.metrics.items()]
            progress = self._progress(view, min(_WIDE_BAR, self._width // 3))
            parts = [*progress, Text(view.steps, style="dim"), _left(view), *metrics]
            rows.append(self._row(Text(" "), parts))
        groups = view.facts.groups
        widest = max((cell_len(group.name) for group in groups), default=0)
        for group in groups:
            style = "yellow" if group.has_trouble else "dim" if group.is_done else ""
            rows.append(Text.assemble("  ", f"{group.name:{widest}}  ", (group.text, style)))
        return rows + problems

    def compact(self, views: Sequence[JobView], room: int) -> list[Text]:
        """A row for each job, those first that go on; the last row counts those for which there is none."""
        ordered = sorted(views, key=lambda view: view.facts.importance)
        shown = ordered if len(ordered) <= room else ordered[: room - 1]
        heads = [self._head(view) for view in shown]
        widths = [max(cell_len(text.plain) for text in column) for column in zip(*heads, strict=True)]
        beside = self._width - sum(width + len(_GAP) for width in widths) - len(_GAP)
        rows = []
        for view, head in zip(shown, heads, strict=True):
            for text, width in zip(head, widths, strict=True):
                text.pad_right(width - cell_len(text.plain))
            rows.append(self._row(self._mark(view), [*head, *self._told(view, beside), _restarts(view)]))
        if rest := ordered[len(shown) :]:
            counts = Counter(view.facts.state for view in rest)
            listed = ", ".join(f"{count} {state}" for state, count in counts.most_common())
            more = "more" if shown else "jobs"
            rows.append(Text(f"{self._glyphs.ellipsis} {len(rest)} {more}: {listed}", style="dim"))
        return rows

    def _head(self, view: JobView) -> list[Text]:
        name = Text(view.name, style="bold")
        name.truncate(max(_LEAST, self._width // 3), overflow="ellipsis")
        state = Text(view.facts.state, style=_STYLES.get(view.facts.state, ""))
        return [name, state, Text("" if view.elapsed is None else clock(view.elapsed), style="dim")]

    def _told(self, view: JobView, room: int) -> list[Text]:
        """What a single row tells of a job: what is wrong, else how far it is."""
        if problems := view.facts.problems:
            text, style = problems[0]
            told = Text(text, style=style)
            told.truncate(max(_LEAST, room), overflow="ellipsis")
            return [told]
        if view.facts.outcome is not None:
            return []
        groups = view.facts.groups
        style = "yellow" if any(group.has_trouble for group in groups) else ""
        return [
            *self._progress(view, min(_NARROW_BAR, self._width // 6)),
            Text(summary(groups), style=style),
            _left(view),
        ]

    def _mark(self, view: JobView) -> Text:
        glyphs, state = self._glyphs, view.facts.state
        moving = glyphs.spinner[self._tick % len(glyphs.spinner)]
        still = {FAILED: glyphs.wrong, DELETED: glyphs.wrong, SUSPENDED: glyphs.waiting}
        still |= dict.fromkeys(GOOD, glyphs.done)
        mark = still.get(state, glyphs.attention if view.facts.wants_attention else moving)
        return Text(mark, style=_STYLES.get(state, ""))

    def _progress(self, view: JobView, width: int) -> list[Text]:
        if view.fraction is None:
            return []
        filled = int(view.fraction * width)
        rest = self._glyphs.rest * (width - filled)
        percent = f"{math.floor(view.fraction * 100 + 1e-9)}%".rjust(4)
        return [
            Text.assemble((self._glyphs.bar * filled, "cyan"), (rest, "dim")),
            Text(percent, style="bold"),
            Text(view.what),
        ]

    def _row(self, mark: Text, parts: Sequence[Text]) -> Text:
        """Put parts beside each other, those that matter most first: what does not fit is left out."""
        row = Text.assemble(mark, " ", parts[0])
        for part in parts[1:]:
            if part and cell_len(row.plain) + len(_GAP) + cell_len(part.plain) <= self._width:
                row = Text.assemble(row, _GAP, part)
        return row


def _left(view: JobView) -> Text:
    return Text("" if view.remaining is None else f"{clock(view.remaining)} left")


def _restarts(view: JobView) -> Text:
    count = view.facts.restarts
    return Text(f"{count} restart{'s' if count > 1 else ''}" if count else "", style="yellow")


def _problems(status: JobStatus) -> list[tuple[str, str]]:
    """What stands in the way of a job, in a row each, with how it looks."""
    found = []
    if status.unreachable and status.outcome is None:
        found.append(("the cluster does not answer: this may be out of date", "yellow"))
    for kind, condition in status.conditions.items():
        if kind not in {*GOOD, FAILED} and not (kind == CONTAINER_FAILED and status.failures):
            found.append((one_line(str(condition.get("message") or condition.get("reason") or kind)), "yellow"))
    if status.outcome not in GOOD and (failures := status.last_failures):
        found.append((_told(failures[0], status.restarts), "red"))
    return found


def _told(first: Failure, restarts: int) -> str:
    """A failure in the words of its last line, which say more than its exit code, and come first."""
    failure = first.failure
    facts = f"exit code {failure.exit_code}" + (f", {attempt_of(failure)}" if restarts else "")
    said = next((one_line(line) for line in reversed(without_verdict(first.lines)) if line.strip()), "")
    return f"{first.who} failed: {said} ({facts})" if said else f"{first.who} failed: {facts}"
