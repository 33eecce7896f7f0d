"""What the benchmark hands out: a table for people, JSON for programs, and a comparison with an earlier run."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import orjson

from bench.burst import Measured
from bench.figures import FIGURES, regressed, verdict
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__

_LIBRARIES: Final = ("aiohttp", "orjson", "prometheus-client", "pydantic", "structlog")
_VERDICTS: Final = {None: "", True: "met", False: "MISSED"}


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a run."""

    jobs: int
    measured: Measured

    def table(self) -> Iterator[str]:
        """Yield the lines of the table."""
        yield f"{'figure':<29} {'value':>10} {'unit':<10} {'budget':>8}  {'':<7} what it is"
        for name, figure in FIGURES.items():
            if name not in self.measured.values:
                continue
            value = self.measured.values[name]
            budget = f"<= {figure.budget.at_most:g}" if figure.budget is not None else ""
            met = _VERDICTS[verdict(name, value, jobs=self.jobs)]
            if figure.budget is not None and not met:
                met = f"@{figure.budget.at_jobs}"
            yield f"{name:<29} {number(value):>10} {figure.unit:<10} {budget:>8}  {met:<7} {figure.text}"
        for phase, requests in self.measured.requests.items():
            counts = ", ".join(f"{count} {name}" for name, count in requests.counts.most_common()) or "none"
            yield f"requests of the phase {phase}: {counts}"

    def document(self) -> JsonObject:
        """Return everything as JSON."""
        figures = {}
        for name, value in self.measured.values.items():
            figure = FIGURES[name]
            entry: JsonObject = {"value": round(value, 4), "unit": figure.unit}
            if figure.budget is not None:
                entry |= {"budget": figure.budget.at_most, "met": verdict(name, value, jobs=self.jobs)}
            figures[name] = entry
        requests = {phase: dict(each.counts.most_common()) for phase, each in self.measured.requests.items()}
        return {"machine": machine(), "jobs": self.jobs, "figures": figures, "requests": requests}

    def compare(self, reference: JsonObject) -> list[str]:
        """Return a line for each figure that is worse than an earlier run of as many TrainJobs allows."""
        lines: list[str] = []
        if reference["jobs"] != self.jobs:
            return lines
        for name, earlier in reference["figures"].items():
            value = self.measured.values.get(name)
            if value is None or name not in FIGURES:
                continue
            bound = regressed(name, value, earlier["value"])
            if bound is not None:
                lines.append(
                    f"{name} regressed: {number(value)} {FIGURES[name].unit}, but it may be {number(bound)} "
                    f"(the reference has {number(earlier['value'])})"
                )
        return lines


def machine() -> JsonObject:
    """Describe where this runs."""
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "trainmaster": __version__,
        "libraries": {name: version(name) for name in _LIBRARIES},
    }


def read_document(path: Path) -> JsonObject:
    """Read what an earlier run has written.

    Raises:
        ValueError: It is something else.
    """
    document: Any = orjson.loads(path.read_bytes())
    if not isinstance(document, dict) or not {"jobs", "figures"} <= document.keys():
        raise ValueError("it was not written by --json")
    return document


def write_document(path: Path, document: JsonObject) -> None:
    """Write the JSON of a run."""
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def number(value: float) -> str:
    """Write a number with three digits that count."""
    if value == int(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
