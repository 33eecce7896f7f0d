"""The tables of profiles: shares by cause beside each other, and the functions that take most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from profiling.causes import CAUSES, OTHER
from profiling.profile import Function, PhaseProfile

Profiles = Mapping[str, Mapping[str, PhaseProfile]]
"""Of commits, by phase."""

TITLES: Final[Mapping[str, str]] = {
    "create": "creation",
    "live": "completion",
    "settled": "resync",
    "restart": "restart",
}
"""Phases of the benchmark in the order of a report."""

UNEXPLAINED_AT_MOST: Final = 0.05

_DRIVES: Final = 0.99
"""Whatever is in so many stacks only runs the rest."""


def by_cause(profiles: Profiles) -> Iterator[str]:
    """Yield the lines of a table: a column for each commit and phase."""
    phases = _phases(profiles)
    yield _line("CPU for a job, ms", *(f"{TITLES[phase]}, {commit}" for phase in phases for commit in profiles))
    yield _line("---", *("---:" for _ in phases for _ in profiles))
    columns = [profiles[commit][phase] for phase in phases for commit in profiles]
    for cause in sorted((*CAUSES, OTHER), key=lambda each: -max(column.share(each) for column in columns)):
        if any(column.share(cause) >= 0.0005 for column in columns):
            yield _line(cause, *(_cell(column, cause) for column in columns))
    yield _line("all", *(f"{column.cpu:.2f}" for column in columns))


def by_function(profile: PhaseProfile, count: int) -> Iterator[str]:
    """Yield the functions of a phase that take most, first by themselves, then with all that they call."""
    orders = {
        "by itself": sorted(profile.functions, key=lambda each: -each.own),
        "with what it calls": sorted(
            (each for each in profile.functions if each.inclusive < _DRIVES), key=lambda each: -each.inclusive
        ),
    }
    for title, functions in orders.items():
        yield f"{'own':>6} {'all':>6}  function, most {title}"
        yield from (_function(each) for each in functions[:count])


def unexplained(profiles: Profiles) -> list[str]:
    """Name the phases of which the table of causes knows too little."""
    return [
        f"{100 * profile.unexplained:.1f} % of {TITLES[phase]}, {commit}, has no cause: add to hack/profiling/causes.py"
        for commit, phases in profiles.items()
        for phase, profile in phases.items()
        if profile.unexplained > UNEXPLAINED_AT_MOST
    ]


def _phases(profiles: Profiles) -> Sequence[str]:
    return [phase for phase in TITLES if all(phase in each for each in profiles.values())]


def _cell(profile: PhaseProfile, cause: str) -> str:
    share = profile.share(cause)
    return f"{share * profile.cpu:.2f} ({100 * share:.0f} %)"


def _function(function: Function) -> str:
    return f"{100 * function.own:5.1f}% {100 * function.inclusive:5.1f}%  {function.name}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
