"""Pictures of the web page of a manager, at the end of the load."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from pathlib import Path
from typing import Final

from bench.api import BenchmarkFailed
from dashboards.browser import picture_of
from dashboards.jobs import TEAMS
from dashboards.load import FAILING, REPORTING

_WIDTH: Final = 1280
_HEIGHTS: Final = {"jobs": 860, "job": 1400, "failed": 1000}
_TIMEOUT: Final = 30.0


async def draw(address: str, output: Path) -> None:
    """Write the list of jobs, one that has reported its progress, and one that has failed.

    Args:
        address: Where the manager serves its metrics, `HOST:PORT`, on this machine: it asks nobody who they are.
        output: The directory for the pictures.
    """
    await asyncio.to_thread(_draw, f"http://{address}/web/", output)


def _draw(url: str, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    pages = {
        "jobs": url,
        "job": url + _link(f"{url}?namespace={TEAMS[0]}&state=Succeeded", REPORTING),
        "failed": url + _link(f"{url}?namespace={TEAMS[1]}&state=Failed", FAILING),
    }
    for name, page in pages.items():
        target = output / f"{name}.png"
        picture_of(page, width=_WIDTH, height=_HEIGHTS[name], target=target)
        print(f"{target} is written, {target.stat().st_size // 1024} KiB")


def _link(listing: str, job: str) -> str:
    """Return the address of the page of a job, from that of the list."""
    with urllib.request.urlopen(listing, timeout=_TIMEOUT) as answer:  # noqa: S310 - a manager of ours
        html = answer.read().decode()
    found = re.search(rf'href="(jobs/[^"]+/{re.escape(job)}/[^"]+)"', html)
    if found is None:
        raise BenchmarkFailed(f"{listing} does not show {job}")
    return found[1]
