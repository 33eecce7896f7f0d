"""The rows of the live display, for any number of jobs and any size of a terminal; pure.

- A job has a row for its state, one for its progress, one for each group of its ranks, and one for each thing that is
  wrong. If there is no room for that, it has one row; jobs for which there is none either are counted in the last.
- What matters least is left out first where a row is too long; nothing wraps.
- The display takes half of the terminal's lines at most: the other half is for the logs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from trainmaster.controller.cli.follow.failures import Failure, attempt_of, without_verdict
from trainmaster.controller.cli.follow.job_status import DELETED, GOOD, UNKNOWN, JobStatus
from trainmaster.controller.cli.follow.progress import JobView
from trainmaster.controller.cli.follow.summary import clock, rank_groups, summary
from trainmaster.controller.cli.output import one_line, plain
from trainmaster.controller.conditions import BLOCKED, CONTAINER_FAILED, WAITING
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
    WAITING: "yellow",
}
_WIDE_BARS: Final = (24, 16, 10, 5)
_NARROW_BARS: Final = (20, 10, 5)
_NAME_WIDTHS: Final = (40, 24, 16, 10)


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


def frame(views: Sequence[JobView], *, columns: int, lines: int, tick: int, glyphs: Glyphs = UNICODE) -> list[Text]:
    """Return the rows of the display.

    Args:
        views: The jobs.
        columns: Width of the terminal; rows are one shorter, since the last column makes some terminals wrap.
        lines: Height of the terminal.
        tick: Counts the drawings; it moves what is to move.
        glyphs: What to draw with.
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
        elapsed = [] if view.elapsed is None else [_Part(Text(clock(view.elapsed), style="dim"))]
        name = [_Part(*_cuts(view.name, _NAME_WIDTHS, style="bold"), keep=8)]
        rows.append(self._fit(self._mark(view), [*name, _Part(self._state(view.status)), *elapsed, *_restarts(view)]))
        problems = [Text(f"  {self._glyphs.attention} {text}", style=style) for text, style in _problems(view.status)]
        if view.status.outcome is not None:
            return rows + problems
        if view.fraction is not None or view.metrics:
            parts = [*self._progress(view, _WIDE_BARS), *_left(view), *_metrics(view)]
            rows.append(self._fit(Text(" "), parts))
        groups = rank_groups(view.status)
        widest = max((cell_len(group.name) for group in groups), default=0)
        for group in groups:
            style = "yellow" if group.has_trouble else "dim" if group.is_done else ""
            rows.append(Text.assemble("  ", f"{group.name:{widest}}  ", (group.text, style)))
        return rows + problems

    def compact(self, views: Sequence[JobView], room: int) -> list[Text]:
        """A row for each job, those first that go on; the last row counts those for which there is none."""
        ordered = sorted(views, key=lambda view: _importance(view.status))
        shown = ordered if len(ordered) <= room else ordered[: room - 1]
        names = max((cell_len(view.name) for view in shown), default=0)
        states = max((cell_len(view.status.state) for view in shown), default=0)
        times = max((len(clock(view.elapsed)) for view in shown if view.elapsed is not None), default=0)
        rows = [self._row(view, names, states, times) for view in shown]
        if rest := ordered[len(shown) :]:
            counts = Counter(view.status.state for view in rest)
            listed = ", ".join(f"{count} {state}" for state, count in counts.most_common())
            more = "more" if shown else "jobs"
            rows.append(Text(f"{self._glyphs.ellipsis} {len(rest)} {more}: {listed}", style="dim"))
        return rows

    def _row(self, view: JobView, names: int, states: int, times: int) -> Text:
        widths = dict.fromkeys(min(names, width) for width in _NAME_WIDTHS)
        state = self._state(view.status)
        state.pad_right(states - cell_len(state.plain))
        elapsed = "" if view.elapsed is None else clock(view.elapsed)
        parts = [
            _Part(*_cuts(view.name, widths, style="bold", pad=True), keep=8),
            _Part(state),
            _Part(Text(elapsed.rjust(times), style="dim"), Text(), keep=6),
        ]
        if trouble := _problems(view.status):
            text, style = trouble[0]
            parts.append(_Part(*_cuts(text, (70, 50, 30), style=style), keep=4))
        if view.status.outcome is None:
            groups = rank_groups(view.status)
            style = "yellow" if any(group.has_trouble for group in groups) else ""
            parts += [
                *self._progress(view, _NARROW_BARS),
                *_left(view),
                _Part(Text(summary(groups), style=style), Text(), keep=2),
            ]
        return self._fit(self._mark(view), [*parts, *_restarts(view)])

    def _mark(self, view: JobView) -> Text:
        glyphs, state = self._glyphs, view.status.state
        moving = glyphs.spinner[self._tick % len(glyphs.spinner)]
        still = {FAILED: glyphs.wrong, DELETED: glyphs.wrong, SUSPENDED: glyphs.waiting}
        still |= dict.fromkeys(GOOD, glyphs.done)
        mark = still.get(state, glyphs.attention if state in {BLOCKED, UNKNOWN, WAITING} else moving)
        return Text(mark, style=_STYLES.get(state, ""))

    def _state(self, status: JobStatus) -> Text:
        return Text(status.state, style=_STYLES.get(status.state, ""))

    def _progress(self, view: JobView, bars: Sequence[int]) -> list[_Part]:
        if view.fraction is None:
            return []
        return [
            _Part(*[self._bar(view.fraction, width) for width in bars], Text(), keep=4),
            _Part(Text(f"{math.floor(view.fraction * 100 + 1e-9)}%".rjust(4), style="bold")),
            _Part(*_cuts(view.what, (40, 20)), Text(), keep=5),
            _Part(Text(view.steps, style="dim"), Text(), keep=1),
        ]

    def _bar(self, fraction: float, width: int) -> Text:
        filled = int(fraction * width)
        return Text.assemble((self._glyphs.bar * filled, "cyan"), (self._glyphs.rest * (width - filled), "dim"))

    def _fit(self, mark: Text, parts: Sequence[_Part]) -> Text:
        """Put parts beside each other, each as long as there is room for it."""
        chosen = [0] * len(parts)
        while True:
            texts = [part.variants[index] for part, index in zip(parts, chosen, strict=True)]
            row = Text.assemble(mark, " ", Text("  ").join(text for text in texts if text))
            shorter = [index for index, part in enumerate(parts) if chosen[index] + 1 < len(part.variants)]
            if not shorter or cell_len(row.plain) <= self._width:
                return row
            chosen[min(shorter, key=lambda index: (parts[index].keep, chosen[index], index))] += 1


class _Part:
    """A piece of a row: its variants, the longest first, and how much it matters if there is more than one."""

    def __init__(self, *variants: Text, keep: int = 0) -> None:
        self.variants = variants
        self.keep = keep


def _cuts(text: str, widths: Iterable[int], *, style: str = "", pad: bool = False) -> list[Text]:
    """Return a text at several widths, the longest first, without repetitions."""
    found: list[Text] = []
    for width in widths:
        cut = Text(text, style=style)
        cut.truncate(width, overflow="ellipsis", pad=pad)
        if cut not in found:
            found.append(cut)
    return found


def _left(view: JobView) -> list[_Part]:
    return [] if view.remaining is None else [_Part(Text(f"{clock(view.remaining)} left"), Text(), keep=6)]


def _restarts(view: JobView) -> list[_Part]:
    count = view.status.restarts
    text = f"{count} restart{'s' if count > 1 else ''}" if count else ""
    return [_Part(Text(text, style="yellow"), Text(), keep=3)]


def _metrics(view: JobView) -> list[_Part]:
    told = [f"{name} {value}" for name, value in view.metrics.items()]
    return [_Part(*[Text("  ".join(told[:count]), style="dim") for count in range(len(told), -1, -1)], keep=0)]


def _problems(status: JobStatus) -> list[tuple[str, str]]:
    """What stands in the way of a job, in a row each, with how it looks."""
    found = []
    if status.unreachable and status.outcome is None:
        found.append(("the cluster does not answer: this may be out of date", "yellow"))
    for kind, condition in status.conditions.items():
        if kind not in {*GOOD, FAILED} and not (kind == CONTAINER_FAILED and status.failures):
            found.append((one_line(str(condition.get("message") or condition.get("reason") or kind)), "yellow"))
    if (first := status.first_failure) is not None and status.outcome not in GOOD:
        found.append((_told(first, status.restarts), "red"))
    return found


def _told(first: Failure, restarts: int) -> str:
    """A failure in the words of its last line, which say more than its exit code, and come first."""
    failure = first.failure
    who = f"container {failure.container}" if failure.rank is None else f"rank {failure.rank}"
    facts = f"exit code {failure.exit_code}" + (f", {attempt_of(failure)}" if restarts else "")
    said = next((one_line(line) for line in reversed(without_verdict(first.lines)) if line.strip()), "")
    return f"{who} failed: {said} ({facts})" if said else f"{who} failed: {facts}"


def _importance(status: JobStatus) -> int:
    if status.outcome is None:
        return 0 if status.state != "Pending" or status.failures else 1
    return 3 if status.outcome in GOOD else 2
