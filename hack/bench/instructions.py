"""`python -m bench.instructions`: how many instructions a manager executes for a TrainJob, on machines of any speed.

Seconds differ by three between machines and hours; instructions of one Python in user space hardly differ at all. So
this is what a change can be held to: it fails if creation or completion of a TrainJob takes clearly more than in the
reference, hack/bench/instructions.json.

Instructions are those of a build of Python. With another one than the reference's, the commit that the reference was
counted at is counted as well, in the same run, in place of the stored numbers.

Exit codes: 0 no more than the reference allows, 1 more (what, is named), 2 it could not be counted or compared.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from bench.api import Api, BenchmarkFailed
from bench.burst import prepared_server
from bench.callgrind import Counter, counted_manager
from bench.checkout import ROOT, ready
from bench.one_by_one import OneByOne
from bench.processes import Program
from bench.workloads import TrainJobs

REFERENCE: Final = Path(__file__).with_name("instructions.json")

JOBS: Final = 24
WARM_UP: Final = 10
"""TrainJobs whose lives are not counted: what is done once is done then."""

TOLERATED: Final = 1.05
"""How many times the reference a count may be. Runs of one commit, beside other work or not, differed by 1 %."""

_SETTLES: Final = 0.5
"""Seconds that what a report causes may take after the last answer."""

Counts = Mapping[str, float]
"""Thousands of instructions for a TrainJob, by phase."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a manager took when that was found to be right."""

    commit: str
    build: str
    """Of Python."""

    instructions: Counts

    @classmethod
    def read(cls, path: Path) -> Reference:
        """Read a reference.

        Raises:
            BenchmarkFailed: There is none.
        """
        try:
            document: Any = orjson.loads(path.read_bytes())
            return cls(**document)
        except (OSError, TypeError, ValueError) as error:
            raise BenchmarkFailed(f"{path} is no reference ({error}); make one with --renew") from error

    def write(self, path: Path) -> None:
        """Write it for `read`."""
        path.write_bytes(orjson.dumps(self, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def build() -> str:
    """Tell which Python this is: of which version, made of what and when, for what."""
    number, date = platform.python_build()
    return f"{platform.python_version()} ({number}, {date}) {platform.python_compiler()} {platform.machine()}"


def exceeded(counts: Counts, reference: Counts) -> list[str]:
    """Return a line for each phase that takes more than is tolerated."""
    return [
        f"{phase} takes {counts[phase]:,.0f} thousand instructions for a TrainJob, {counts[phase] / allowed:.3f} times "
        f"the reference's {allowed:,.0f}; up to {TOLERATED} is tolerated"
        for phase, allowed in reference.items()
        if counts[phase] > allowed * TOLERATED
    ]


async def count(program: Program, *, jobs: int) -> Counts:
    """Count the instructions of a manager.

    Raises:
        BenchmarkFailed: It could not be counted.
    """
    with tempfile.TemporaryDirectory(prefix="trainmaster-count-") as name:
        directory = Path(name)
        async with (
            prepared_server(directory, TrainJobs()) as (server, api),
            counted_manager(server.kubeconfig, directory, program) as counter,
        ):
            return await _counts(counter, api, jobs=jobs)


async def _counts(counter: Counter, api: Api, *, jobs: int) -> Counts:
    counts: dict[str, list[int]] = {}
    async with OneByOne(api) as load:
        for number in range(WARM_UP):
            await load.create(number)
            await load.live(number)
        await asyncio.sleep(_SETTLES)
        await counter.begin()
        for phase, work in (("create", load.create), ("live", load.live)):
            for number in range(WARM_UP, WARM_UP + jobs):
                await work(number)
                await asyncio.sleep(_SETTLES)
                counts.setdefault(phase, []).append(await counter.count())
    return {phase: undisturbed(each) / 1000 for phase, each in counts.items()}


def undisturbed(counts: Sequence[int]) -> float:
    """Return what a TrainJob takes when nothing else happens.

    A count has more if what a manager does by the clock fell into it, or if two events were read one after the other
    that are mostly read together. So it is the lower quartile that is always the same, not the mean.
    """
    return statistics.quantiles(counts, n=4, method="inclusive")[0]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="instructions", description="Count the instructions of a manager for a TrainJob.", allow_abbrev=False
    )
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help="for so many (default: %(default)s)")
    parser.add_argument("--reference", type=Path, default=REFERENCE, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--renew", action="store_true", help="make what is counted now the reference")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        if arguments.renew:
            return _renew(arguments.reference, jobs=arguments.jobs)
        return _compare(Reference.read(arguments.reference), jobs=arguments.jobs)
    except BenchmarkFailed as error:
        print(f"instructions: {error}", file=sys.stderr)
        return 2


def _renew(path: Path, *, jobs: int) -> int:
    commit = subprocess.run(  # noqa: S603 - whichever git made this checkout
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    counts = asyncio.run(count(Program(), jobs=jobs))
    rounded = {phase: round(value) for phase, value in counts.items()}
    Reference(commit, build(), rounded).write(path)
    print(f"{path} is written: {_told(counts)}")
    return 0


def _compare(reference: Reference, *, jobs: int) -> int:
    before: Counts = reference.instructions
    if build() != reference.build:
        print(f"this is Python {build()}, the reference was counted with {reference.build}:", file=sys.stderr)
        other = ready(reference.commit, say=lambda text: print(f"{text} ...", file=sys.stderr))
        before = asyncio.run(count(other.program, jobs=jobs))
        print(f"{other.name}, the commit of the reference, {_told(before)}")
    counts = asyncio.run(count(Program(), jobs=jobs))
    print(f"this tree {_told(counts)}")
    problems = exceeded(counts, before)
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
        print(
            "find out what takes it: `make profile` draws it; if it is worth it, commit a new reference:"
            ' make instructions ARGS="--renew"',
            file=sys.stderr,
        )
    return 1 if problems else 0


def _told(counts: Counts) -> str:
    told = ", ".join(f"{phase} {value:,.0f}" for phase, value in counts.items())
    return f"takes, in thousands of instructions for a TrainJob: {told}"


if __name__ == "__main__":
    sys.exit(main())
