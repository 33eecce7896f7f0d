"""Write the figures of docs/benchmarks.md and the picture of growth, from what was measured:

- hack/profiling/results.json, by `make profile ARGS="--against COMMIT --json hack/profiling/results.json"`
- hack/bench/growth.json, by `make growth`

    python hack/generate_benchmarks.py [--check]

Only what stands between two markers is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import generator
from bench import growth
from bench.figures import FIGURES
from bench.picture import picture
from bench.reporting import number
from profiling import results
from profiling.report import by_cause
from trainmaster.runtime.jsontree import JsonObject

ROOT: Final = Path(__file__).resolve().parents[1]
TARGET: Final = ROOT / "docs/benchmarks.md"
PICTURE: Final = ROOT / "docs/images/benchmarks/growth.svg"
PROFILES: Final = ROOT / "hack/profiling/results.json"
GROWTH: Final = ROOT / "hack/bench/growth.json"

NOT_MEASURED: Final = "Not measured yet.\n"


def main() -> int:
    """Run the command."""
    arguments = generator.parser(__doc__).parse_args()
    files = {}
    contents = {"profile": NOT_MEASURED, "growth": NOT_MEASURED}
    if PROFILES.exists():
        found = results.read(PROFILES)
        head = f"{found.jobs:,} TrainJobs, {_machine(found.machine)}\n\n"
        contents["profile"] = head + "\n".join(by_cause(found.profiles)) + "\n"
    if GROWTH.exists():
        grown = growth.Growth.read(GROWTH)
        files[PICTURE] = picture(grown)
        image = f"![CPU of the manager for one TrainJob, by how many there are](images/benchmarks/{PICTURE.name})"
        contents["growth"] = f"{_machine(grown.machine)}\n\n" + "\n".join(_sizes(grown)) + f"\n\n{image}\n"
    try:
        files[TARGET] = generator.filled(TARGET.read_text(encoding="utf-8"), contents)
    except generator.PlaceUnknown as error:
        print(f"{TARGET}: {error}", file=sys.stderr)
        return 1
    return generator.write(files, check=arguments.check)


def _sizes(grown: growth.Growth) -> Iterator[str]:
    """Yield a line for each figure, a column for each number of jobs."""
    sizes = sorted(grown.sizes)
    yield _line("TrainJobs", *(f"{jobs:,}" for jobs in sizes))
    yield _line("---", *("---:" for _ in sizes))
    for name in growth.FIGURES:
        cells = [number(grown.sizes[jobs][name]) if name in grown.sizes[jobs] else "-" for jobs in sizes]
        unit = FIGURES[name].unit
        yield _line(f"`{name}`{f', {unit}' if unit else ''}", *cells)


def _machine(here: JsonObject) -> str:
    return f"{here['cpus']} CPUs ({here['cpu']}), {here['system']}, Python {here['python']}."


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
