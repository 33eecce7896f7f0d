"""`python -m profiling`: profile a manager that faces many TrainJobs.

Exit codes: 0 profiled, 1 too much of a phase has no cause (it is named), 2 it could not be profiled.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from bench.api import BenchmarkFailed
from bench.burst import Load, Measured, measure
from bench.checkout import ready
from bench.processes import Program
from bench.reporting import machine
from bench.workloads import TrainJobs
from profiling import manager
from profiling.profile import PhaseProfile
from profiling.report import TITLES, by_cause, by_function, unexplained
from profiling.results import Results, write
from profiling.sampler import read

JOBS: Final = 2000
OURS: Final = "now"


def main() -> int:
    """Run the command."""
    arguments = _parser().parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    profiles = {}
    try:
        if arguments.against is not None:
            other = ready(arguments.against, say=_say)
            profiles[other.name] = profile(arguments.jobs, other.program, say=_say)
        profiles[OURS] = profile(arguments.jobs, Program(), say=_say)
    except BenchmarkFailed as error:
        print(f"profile: {error}", file=sys.stderr)
        return 2
    print(*by_cause(profiles), sep="\n")
    for commit, phases in profiles.items() if arguments.functions else ():
        for phase in phases:
            print(f"\n{TITLES[phase]}, {commit}, {phases[phase].samples} samples")
            print(*by_function(phases[phase], arguments.functions), sep="\n")
    if arguments.json is not None:
        write(arguments.json, Results(machine(), arguments.jobs, profiles))
    gaps = unexplained(profiles)
    print(*gaps, sep="\n", end="\n" if gaps else "", file=sys.stderr)
    return 1 if gaps else 0


def profile(jobs: int, program: Program, *, say: Callable[[str], None]) -> Mapping[str, PhaseProfile]:
    """Run the benchmark with managers that profile themselves, and return their profile by phase.

    Raises:
        BenchmarkFailed: It could not be run.
    """
    with tempfile.TemporaryDirectory(prefix="trainmaster-profile-") as name:
        directory = Path(name)
        modules, profiles = directory / "modules", directory / "profiles"
        modules.mkdir()
        profiles.mkdir()
        # Nothing else of this tree may come before the other commit's own.
        (modules / "profiling").symlink_to(Path(__file__).parent)
        sampled = dataclasses.replace(
            program,
            module=manager.__name__,
            environment={"PYTHONPATH": str(modules), "PROFILES": str(profiles)},
        )
        load = Load(jobs=jobs, workload=TrainJobs(), program=sampled)
        measured = asyncio.run(measure(load, directory, say=say))
        samples = [sample for file in sorted(profiles.iterdir()) for sample in read(file)]
    cpu = cpu_by_phase(measured)
    return {
        phase: PhaseProfile.of((each for each in samples if began <= each.moment < ended), cpu[phase])
        for phase, (began, ended) in measured.times.items()
        if phase in TITLES
    }


def cpu_by_phase(measured: Measured) -> Mapping[str, float]:
    """Return the milliseconds of CPU for a job of each phase."""
    values = measured.values
    return {
        "create": values["create.cpu"],
        "live": values["life.cpu"] - values["create.cpu"],
        "settled": values["settled.cpu"],
        "restart": values["restart.cpu"],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="profile",
        description="Tell what a manager that faces many TrainJobs takes CPU for, on an API server of its own.",
        allow_abbrev=False,
    )
    parser.add_argument("--jobs", type=_positive, default=JOBS, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument(
        "--functions", type=_positive, metavar="N", help="name the functions that take most, N of each phase"
    )
    parser.add_argument("--against", metavar="COMMIT", help="profile a manager of that commit before")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to a file, too")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; use one from 1 up")
    return int(text)


def _say(text: str) -> None:
    print(f"{text} ...", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
