"""Managers of this tree and of another commit, in turn, on one machine: what machines and hours differ in falls out.

Server, load and the other clients are those of this tree for both.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.burst import Load, measure
from bench.checkout import Checkout
from bench.figures import FIGURES
from bench.reporting import machine, number
from trainmaster.runtime.jsontree import JsonObject

GOALS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "create.cpu": 0.5,
        "create.requests": 1.0,
        "create.events": 1.0,
        "life.cpu": 0.5,
        "life.requests": 1.0,
        "life.events": 1.0,
        "manager.peak_memory": 1.0,
    }
)
"""The most that figures may be of those of 5a910f6, the commit before the manager was made faster."""

OURS: Final = "this tree"


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure of both, measured as often and each pair one after the other."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def medians(self) -> tuple[float, float]:
        """What stands for all runs: of ours, of theirs."""
        return statistics.median(self.ours), statistics.median(self.theirs)

    @property
    def ratio(self) -> float | None:
        """How many times theirs ours is; None if theirs is nothing."""
        ours, theirs = self.medians
        return ours / theirs if theirs else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The lowest and the highest ratio of runs that were beside each other."""
        ratios = [our / their for our, their in zip(self.ours, self.theirs, strict=True) if their]
        return (min(ratios), max(ratios)) if ratios else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came out: every figure of every run."""

    jobs: int
    other: str
    """The commit."""

    figures: dict[str, Pair] = field(default_factory=dict)

    def add(self, ours: Mapping[str, float], theirs: Mapping[str, float]) -> None:
        """Add a run of each; a figure that only one of them has cannot be compared."""
        for name in FIGURES:
            if name in ours and name in theirs:
                pair = self.figures.setdefault(name, Pair())
                pair.ours.append(ours[name])
                pair.theirs.append(theirs[name])

    def met(self, name: str) -> bool | None:
        """Tell whether a figure keeps its goal; None if it has none."""
        if name not in GOALS:
            return None
        ours, theirs = self.figures[name].medians
        return ours <= GOALS[name] * theirs

    def table(self) -> Iterator[str]:
        """Yield the lines of the table."""
        yield f"{'figure':<29} {OURS:>10} {self.other:>10} {'unit':<10} {'ratio':>6}  {'pairs':<13} goal"
        for name, pair in self.figures.items():
            ours, theirs = map(number, pair.medians)
            ratio = "" if pair.ratio is None else f"{pair.ratio:.2f}"
            spread = "" if pair.spread is None else "{:.2f} to {:.2f}".format(*pair.spread)
            goal = ""
            if (met := self.met(name)) is not None:
                goal = f"<= {GOALS[name]:g} {'met' if met else 'MISSED'}"
            line = f"{name:<29} {ours:>10} {theirs:>10} {FIGURES[name].unit:<10} {ratio:>6}  {spread:<13} {goal}"
            yield line.rstrip()

    def document(self) -> JsonObject:
        """Return everything as JSON."""
        figures = {
            name: {
                "unit": FIGURES[name].unit,
                "ours": [round(value, 4) for value in pair.ours],
                "theirs": [round(value, 4) for value in pair.theirs],
                "ratio": None if pair.ratio is None else round(pair.ratio, 4),
                "met": self.met(name),
            }
            for name, pair in self.figures.items()
        }
        return {"machine": machine(), "jobs": self.jobs, "against": self.other, "figures": figures}


def compare(load: Load, other: Checkout, *, times: int, say: Callable[[str], None]) -> Comparison:
    """Run both, so many times each, every time on a server of its own.

    Whoever comes first in one pair comes second in the next: what the machine does to whoever is second hits both.
    """
    comparison = Comparison(load.jobs, other.name)
    sides = {OURS: load, other.name: dataclasses.replace(load, program=other.program)}
    for turn in range(times):
        values = {}
        for name in sides if turn % 2 == 0 else reversed(sides):
            say(f"pair {turn + 1} of {times}: {name}")
            with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as directory:
                values[name] = asyncio.run(measure(sides[name], Path(directory), say=lambda _: None)).values
        comparison.add(values[OURS], values[other.name])
        told = ", ".join(f"{name} {pair.ours[-1] / pair.theirs[-1]:.2f}" for name, pair in _told(comparison))
        say(f"pair {turn + 1} of {times}: ratios {told}")
    return comparison


def _told(comparison: Comparison) -> Iterator[tuple[str, Pair]]:
    for name, pair in comparison.figures.items():
        if name in GOALS and pair.theirs[-1]:
            yield name, pair
