"""`python -m bench.growth`: the same figures with few TrainJobs and with many. `make growth` runs it.

What a job takes should not depend on how many there are. hack/generate_benchmarks.py makes a table and a picture of
what is written here.

Exit codes: 0 measured, 2 it could not be measured; sizes that had ended before are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from bench.api import BenchmarkFailed
from bench.burst import Load, Phase, measure
from bench.reporting import machine
from bench.workloads import TrainJobs
from trainmaster.runtime.jsontree import JsonObject

RESULTS: Final = Path(__file__).with_name("growth.json")
SIZES: Final = (200, 2_000, 10_000, 50_000)
PHASES: Final[frozenset[Phase]] = frozenset({"restart", "live"})

FIGURES: Final = (
    "create.cpu", "life.cpu", "restart.cpu", "create.requests", "life.requests", "create.rate", "create.latency_p99",
    "restart.ready", "manager.worst_stall", "manager.peak_memory", "manager.cached", "manager.series",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Growth:
    """What came out: figures by the number of TrainJobs."""

    machine: JsonObject = field(default_factory=machine)
    sizes: dict[int, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Growth:
        """Read what was measured.

        Raises:
            ValueError: The file has something else.
        """
        document: Any = orjson.loads(path.read_bytes())
        if not isinstance(document, dict) or not {"machine", "sizes"} <= document.keys():
            raise ValueError("it was not written by `make growth`")
        return cls(document["machine"], {int(jobs): figures for jobs, figures in document["sizes"].items()})

    def write(self, path: Path) -> None:
        """Write it for `read`."""
        document = {"machine": self.machine, "sizes": dict(sorted(self.sizes.items()))}
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
        path.write_bytes(orjson.dumps(document, option=options))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="growth", description="Measure a manager that faces 200 to 50,000 TrainJobs.", allow_abbrev=False
    )
    parser.add_argument("--jobs", type=int, nargs="+", default=SIZES, metavar="N", help=f"default: {SIZES}")
    parser.add_argument(
        "--json", type=Path, default=RESULTS, metavar="FILE", help="where figures are kept (default: %(default)s)"
    )
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    growth = Growth()
    try:
        for jobs in arguments.jobs:
            with tempfile.TemporaryDirectory(prefix="trainmaster-growth-") as directory:
                load = Load(jobs=jobs, workload=TrainJobs(), phases=PHASES)
                values = asyncio.run(measure(load, Path(directory), say=lambda _: None)).values
            growth.sizes[jobs] = {name: round(values[name], 4) for name in FIGURES if name in values}
            growth.write(arguments.json)
            told = ", ".join(f"{name} {value:.4g}" for name, value in growth.sizes[jobs].items())
            print(f"{jobs} TrainJobs: {told}", flush=True)
    except BenchmarkFailed as error:
        print(f"growth: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
