"""`python -m tuning`: run the experiments of the tuning guide, and write their figures down.

Exit codes: 0 measured, 2 something could not be measured; what had ended before is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import structlog

from bench.api import BenchmarkFailed
from bench.burst import measure
from bench.reporting import machine
from trainmaster.controller.kube.rest.config import ConfigurationError
from tuning.experiments import EXPERIMENTS, Experiment
from tuning.results import Results, read, write

RESULTS: Final = Path(__file__).with_name("results.json")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="tuning",
        description="Try options of the manager with 100 to 50,000 TrainJobs: half an hour on a machine that is idle.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS), metavar="NAME",
        help=f"some of the experiments: {', '.join(EXPERIMENTS)}",
    )  # fmt: skip
    parser.add_argument("--jobs", type=_positive, nargs="+", metavar="N", help="with so many TrainJobs, not their own")
    parser.add_argument("--repeat", type=_positive, metavar="N", help="how often, whatever the number of TrainJobs")
    parser.add_argument(
        "--json", type=Path, default=RESULTS, metavar="FILE", help="where results are kept (default: %(default)s)"
    )
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        results = read(arguments.json)
    except (OSError, ValueError) as error:
        parser.error(f"cannot add to {arguments.json}: {error}")
    results.machine = machine()
    try:
        for name in arguments.only:
            _run(EXPERIMENTS[name], results, arguments)
    except (BenchmarkFailed, ConfigurationError) as error:
        print(f"tuning: {error}", file=sys.stderr)
        return 2
    return 0


def _run(experiment: Experiment, results: Results, arguments: argparse.Namespace) -> None:
    """Run one experiment: all variants in turn, then all of them again."""
    for jobs in arguments.jobs or experiment.runs:
        results.forget(experiment.name, jobs)
        for repetition in range(arguments.repeat or experiment.runs.get(jobs, 1)):
            for variant in experiment.variants_of(jobs):
                began = time.monotonic()
                with tempfile.TemporaryDirectory(prefix="trainmaster-tuning-") as directory:
                    measured = asyncio.run(measure(experiment.load(variant, jobs), Path(directory), say=lambda _: None))
                figures = {name: measured.values[name] for name in experiment.figures if name in measured.values}
                results.add(experiment.name, jobs, variant.name, figures)
                write(arguments.json, results)
                told = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
                print(
                    f"{experiment.name}, {jobs} TrainJobs, {variant.name}, run {repetition + 1}"
                    f" ({time.monotonic() - began:.0f} s): {told}",
                    flush=True,
                )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; use one from 1 up")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
