"""The tables of docs/tuning.md: medians, and ratios to what they are compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.figures import FIGURES
from generator import filled
from tuning.experiments import EXPERIMENTS, Experiment
from tuning.results import Measurement, Results

TITLES: Final = {
    "create.cpu": "CPU until the JobSet is there",
    "settled.cpu": "CPU to look at it again",
    "life.cpu": "CPU of its life",
    "restart.cpu": "CPU of a restart",
    "restart.ready": "restart until ready",
    "start.ready": "start until ready",
    "start.memory": "memory at the start",
    "create.rate": "JobSets a second",
    "create.latency_p50": "until a JobSet is there, p50",
    "create.latency_p99": "until a JobSet is there, p99",
    "manager.worst_stall": "longest stall",
    "manager.peak_memory": "peak memory",
    "manager.cached": "objects in caches",
    "manager.series": "series",
    "waiting.cpu": "CPU until it says why it waits",
    "waiting.lists": "lists of pods",
    "waiting.writes": "writes",
}
"""Of columns, by figure."""

SAME: Final = "same"
"""What is no different: it was more in some repetitions, and less in others."""

_LIMITS: Final = (192, 256, 384, 512, 768, *range(1024, 16384, 512))
_REQUESTS: Final = (100, 200, 300, 500, 750, 1000)
_QPS: Final = (50, 100, 200, 400, 800)
"""What people write into manifests: MiB, thousandths of a core, requests a second."""

_RESERVE: Final = 1.33
_NOT_MEASURED: Final = 15
"""MiB that a manager takes besides for webhooks and jobs of kubeflow.org/v1."""

_START: Final = 1.5
"""Seconds of CPU that a manager takes to start, however many TrainJobs there are."""

_RESTARTS_WITHIN: Final = 30
_STARTS_WITHIN: Final = 30
_BURST: Final = 0.1
_REQUESTS_EACH: Final = 2
"""Until a TrainJob has its JobSet."""


def page(text: str, results: Results) -> str:
    """Return the page with all tables as the results have them.

    Raises:
        PlaceUnknown: Tables and places do not fit.
    """
    return filled(text, {name: _content(name, results) for name in ("machine", "sizing", *EXPERIMENTS)})


def _content(name: str, results: Results) -> str:
    if name == "machine":
        here = results.machine
        return (
            f"{here['cpus']} CPUs ({here['cpu']}), {round(here['memory_mb'] / 1024)} GiB, {here['system']}, "
            f"Python {here['python']}, Trainmaster {here['trainmaster']}.\n"
        )
    if name == "sizing":
        return _sizing(results)
    if name not in results.experiments:
        return "Not measured yet.\n"
    return "\n".join(_tables(EXPERIMENTS[name], results))


def _sizing(results: Results) -> str:
    lines = [
        _line("TrainJobs", "limit of memory", "request of CPU", "lowest `clientConnection.qps` and `burst`"),
        _line("---:", "---:", "---:", "---:"),
    ]
    for jobs in sorted(results.experiments.get("sizes", {})):
        memory, restart = (
            results.measurement("sizes", jobs, "defaults", figure) for figure in ("manager.peak_memory", "restart.cpu")
        )
        if memory is None or restart is None:
            continue
        limit = next(each for each in _LIMITS if each >= _RESERVE * (max(memory.values) + _NOT_MEASURED))
        seconds = _START + max(restart.values) * jobs / 1000
        cpu = next((each for each in _REQUESTS if each >= seconds / _RESTARTS_WITHIN * 1000), _REQUESTS[-1])
        qps = next(each for each in _QPS if each >= _REQUESTS_EACH * jobs * _BURST / _STARTS_WITHIN)
        lines.append(_line(f"{jobs:,}", f"{limit}Mi", f"{cpu}m", f"{qps}, {2 * qps}"))
    return "\n".join(lines) + "\n"


def _tables(experiment: Experiment, results: Results) -> Iterator[str]:
    sizes = sorted(results.experiments[experiment.name])
    if len(experiment.variants) == 1:
        yield _by_size(experiment, sizes, results)
        return
    for jobs in sizes:
        yield _by_variant(experiment, jobs, results)


def _by_size(experiment: Experiment, sizes: list[int], results: Results) -> str:
    """A line for each figure, a column for each number of jobs."""
    (variant,) = experiment.variants
    lines = [_line("TrainJobs", *(f"{jobs:,}{_repetitions(experiment, jobs, results)}" for jobs in sizes))]
    lines.append(_line("---", *("---:" for _ in sizes)))
    for figure in experiment.figures:
        found = [results.measurement(experiment.name, jobs, variant.name, figure) for jobs in sizes]
        base = next((each for each in found if each is not None), None)
        if base is None:
            continue
        cells = [_cell(figure, each, None if each is base else base, absolute=True) for each in found]
        lines.append(_line(TITLES[figure], *cells))
    return "\n".join(lines) + "\n"


def _by_variant(experiment: Experiment, jobs: int, results: Results) -> str:
    """A line for each variant, a column for each figure."""
    first, *others = experiment.variants_of(jobs)

    def found(variant: str, figure: str) -> Measurement | None:
        return results.measurement(experiment.name, jobs, variant, figure)

    heading = f"{jobs:,} TrainJobs{_repetitions(experiment, jobs, results)}"
    lines = [_line(heading, *(TITLES[each] for each in experiment.figures))]
    lines.append(_line("---", *("---:" for _ in experiment.figures)))
    lines.append(_line(first.name, *(_cell(each, found(first.name, each), None) for each in experiment.figures)))
    for variant in others:
        cells = [_cell(each, found(variant.name, each), found(first.name, each)) for each in experiment.figures]
        lines.append(_line(variant.name, *cells))
    return "\n".join(lines) + "\n"


def _repetitions(experiment: Experiment, jobs: int, results: Results) -> str:
    variants = results.experiments[experiment.name][jobs]
    times = min(len(values) for figures in variants.values() for values in figures.values())
    return ", once" if times == 1 else f", {times} times"


def _cell(figure: str, value: Measurement | None, base: Measurement | None, *, absolute: bool = False) -> str:
    if value is None:
        return "-"
    unit = FIGURES[figure].unit
    told = f"{_number(value.median)} {unit.replace('JobSets/s', '')}".strip()
    if base is None:
        return told
    if base.median == 0:
        return told
    times = value.ratio_to(base)
    ratio = SAME if round(times, 2) == 1 else f"x {_number(times)}"
    return f"{told} ({ratio})" if absolute else ratio


def _number(value: float) -> str:
    """Write a number with three digits that count, or two behind the point."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
