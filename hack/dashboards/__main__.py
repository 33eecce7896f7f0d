"""`python -m dashboards`: run managers under load, and draw the dashboards, whose panels need data, and the web page.

Exit codes: 0 every panel has data; 1 some have none, or a rule cannot be evaluated (they are named); 2 it did not run.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

import structlog

from bench.api import BenchmarkFailed
from dashboards import web
from dashboards.browser import picture
from dashboards.cluster import PODS, started
from dashboards.load import LASTS, Load
from dashboards.page import WIDTH, page
from dashboards.panels import Answers, ask
from dashboards.prometheus import INTERVAL, scraping
from trainmaster.metrics.dashboards import DASHBOARDS

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="dashboards",
        description=f"Draw the dashboards from {LASTS / 60:g} minutes of load on an embedded cluster.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", default=ROOT / "docs/images",
        help="where to write the pictures, in dashboards/ and web/ (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs and data there")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if arguments.keep is not None and arguments.keep.exists():
        parser.error(f"{arguments.keep} exists; name a directory that does not")
    code = 2
    try:
        with tempfile.TemporaryDirectory(prefix="trainmaster-dashboards-") as directory:
            kept = arguments.keep or Path(directory)
            kept.mkdir(parents=True, exist_ok=True)
            code = asyncio.run(_run(kept, arguments.output))
    except* BenchmarkFailed as group:
        print(f"dashboards: {_first(group)}", file=sys.stderr)
    return code


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group of such."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _run(directory: Path, output: Path) -> int:
    def say(text: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s: {text} ...", file=sys.stderr)

    began = time.monotonic()
    say("a cluster and two managers start")
    async with started(directory) as running, scraping(running.metrics, directory) as prometheus:
        await asyncio.sleep(5 * INTERVAL)
        begin = time.time()
        say(f"{LASTS / 60:g} minutes of load")
        await Load(running, say).run()
        end = time.time()
        say("asking for every panel")
        answers = {each.uid: await ask(prometheus, each, begin, end) for each in DASHBOARDS}
        failing = await prometheus.failing_rules()
        say("looking at the web page")
        await web.draw(running.metrics[PODS[1]], output / "web")
        print("alerts at the end:", ", ".join(await prometheus.firing()) or "none")
    await asyncio.to_thread(_draw, answers, output / "dashboards")
    return _report(list(answers.values()), failing)


def _draw(answers: dict[str, Answers], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        html, height = page(dashboard, answers[dashboard.uid])
        target = output / f"{dashboard.uid}.png"
        picture(html, width=WIDTH, height=height, target=target)
        print(f"{target} is written, {target.stat().st_size // 1024} KiB")


def _report(answers: list[Answers], failing: list[str]) -> int:
    missing = [text for each in answers for text in each.missing]
    empty = [text for each in answers for text in each.empty]
    asked = sum(len(panel.queries) for dashboard in DASHBOARDS for panel in dashboard.panels)
    print(f"{asked - len(missing) - len(empty)} of {asked} queries have data")
    print(*(f"without data, as may be: {text}" for text in empty), sep="\n", end="\n" if empty else "")
    print(*(f"without data: {text}" for text in missing), sep="\n", end="\n" if missing else "", file=sys.stderr)
    print(*(f"rule: {text}" for text in failing), sep="\n", end="\n" if failing else "", file=sys.stderr)
    return 1 if missing or failing else 0


if __name__ == "__main__":
    sys.exit(main())
