"""`python -m bench`: run the benchmark.

Exit codes: 0 measured, 1 a figure is worse than the reference allows (it is named), 2 it could not be measured. Goals
and budgets that are missed are shown, no more.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path
from typing import get_args

import structlog

from bench.api import BenchmarkFailed
from bench.burst import USUAL, Load, Measured, Phase, measure
from bench.reporting import Report, machine, read_document, write_document
from bench.workloads import WORKLOADS
from trainmaster.runtime.jsontree import JsonObject


def main() -> int:
    """Run the command."""
    parser = _parser()
    arguments = parser.parse_args()
    reference: JsonObject | None = None
    if arguments.compare is not None:
        try:
            reference = read_document(arguments.compare)
        except (OSError, ValueError) as error:
            parser.error(f"cannot compare with {arguments.compare}: {error}")
    workload = WORKLOADS[arguments.kind]
    load = Load(
        jobs=arguments.jobs or workload.jobs,
        workload=workload,
        phases=arguments.phases,
    )
    if "waiting" in load.phases and workload.kind != "TrainJob":
        parser.error("the phase waiting is for TrainJobs")
    # The informers that run in this process would tell the terminal about themselves.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        report = Report(load.jobs, asyncio.run(_measure(load)))
    except BenchmarkFailed as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    here = machine()
    print(
        f"{load.jobs} {workload.kind}s; Python {here['python']}, {here['cpus']} CPUs ({here['cpu']}), {here['system']}"
    )
    print(*report.table(), sep="\n")
    if arguments.json is not None:
        write_document(arguments.json, report.document())
    regressions = report.compare(reference) if reference is not None else []
    print(*regressions, sep="\n", end="\n" if regressions else "", file=sys.stderr)
    return 1 if regressions else 0


def _say(text: str) -> None:
    print(f"{text} ...", file=sys.stderr)


async def _measure(load: Load) -> Measured:
    with tempfile.TemporaryDirectory(prefix="trainmaster-bench-") as directory:
        return await measure(load, Path(directory), say=_say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Measure a manager that faces many jobs, on an API server of its own.",
        allow_abbrev=False,
    )
    parser.add_argument("--kind", choices=WORKLOADS, default="TrainJob", help="which jobs (default: TrainJob)")
    sizes = ", ".join(f"{each.jobs} {each.kind}s" for each in WORKLOADS.values())
    parser.add_argument("--jobs", type=_positive, metavar="N", help=f"how many (default: {sizes})")
    parser.add_argument(
        "--phases",
        type=_phase_names,
        default=USUAL,
        metavar="NAMES",
        help=f"just these after the start and creation, of {', '.join(get_args(Phase))}; create names nothing more "
        "(default: all but waiting, a minute for TrainJobs that wait for pods)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to a file, too")
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="fail if a figure is clearly worse than in this file of --json"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; use one from 1 up")
    return int(text)


def _phase_names(text: str) -> frozenset[Phase]:
    names = frozenset(text.split(","))
    if unknown := names - {"create", *get_args(Phase)}:
        raise argparse.ArgumentTypeError(f"there is no phase {', '.join(sorted(unknown))}")
    return frozenset(phase for phase in get_args(Phase) if phase in names)


if __name__ == "__main__":
    sys.exit(main())
