"""What came out: every figure of every run, in a file that grows while the experiments run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bench.reporting import machine
from trainmaster.runtime.jsontree import JsonObject


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure of one variant, with one number of jobs: a value for each repetition."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        """The value that stands for all."""
        return statistics.median(self.values)

    def ratio_to(self, other: Measurement) -> float:
        """Return how many times the other it is: 1 if it was more in some repetitions, and less in others.

        Each repetition is compared with that of the other that ran next to it: machines are not as fast at all times.
        """
        if len(self.values) != len(other.values):
            return self.median / other.median
        ratios = [one / base for one, base in zip(self.values, other.values, strict=True) if base]
        return 1.0 if not ratios or (len(ratios) > 1 and min(ratios) <= 1 <= max(ratios)) else statistics.median(ratios)


@dataclass(slots=True)
class Results:
    """All runs: by experiment, number of jobs, variant and figure."""

    machine: JsonObject = field(default_factory=machine)
    experiments: dict[str, dict[int, dict[str, dict[str, list[float]]]]] = field(default_factory=dict)

    def add(self, experiment: str, jobs: int, variant: str, figures: Mapping[str, float]) -> None:
        """Add a run."""
        kept = self.experiments.setdefault(experiment, {}).setdefault(jobs, {}).setdefault(variant, {})
        for name, value in figures.items():
            kept.setdefault(name, []).append(round(value, 4))

    def forget(self, experiment: str, jobs: int) -> None:
        """Drop the runs of an experiment that are done anew."""
        self.experiments.get(experiment, {}).pop(jobs, None)

    def measurement(self, experiment: str, jobs: int, variant: str, figure: str) -> Measurement | None:
        """Return a figure, if it was measured."""
        values = self.experiments[experiment].get(jobs, {}).get(variant, {}).get(figure)
        return Measurement(values) if values else None


def read(path: Path) -> Results:
    """Read results; those of no run if there is no file.

    Raises:
        ValueError: It is something else.
    """
    if not path.exists():
        return Results()
    document: Any = orjson.loads(path.read_bytes())
    if not isinstance(document, dict) or not {"machine", "experiments"} <= document.keys():
        raise ValueError("it was not written by `make tuning`")
    experiments = {
        name: {int(jobs): variants for jobs, variants in sizes.items()}
        for name, sizes in document["experiments"].items()
    }
    return Results(document["machine"], experiments)


def write(path: Path, results: Results) -> None:
    """Write results."""
    document = {"machine": results.machine, "experiments": results.experiments}
    path.write_bytes(
        orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
    )
