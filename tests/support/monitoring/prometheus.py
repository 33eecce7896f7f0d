"""A Prometheus of our own: it scrapes the managers, evaluates the alerts, and answers queries."""

import asyncio
import json
import math
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from support.debian import program
from support.monitoring.cluster import NAMESPACE

from bench.api import BenchmarkFailed
from bench.processes import succeeds
from trainmaster.devcluster.listener import free_port
from trainmaster.metrics.alerts import GROUPS, JOB, rule_groups

INTERVAL: Final = 3
"""Seconds between two scrapes."""

RATE_INTERVAL: Final = f"{4 * INTERVAL}s"
"""What Grafana puts in place of $__rate_interval: four scrapes."""

_START_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """One series of an answer."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]
    """Moments, in seconds since the epoch, and values that are numbers."""


class Prometheus:
    """A server that runs."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def query_range(self, expression: str, begin: float, end: float, step: float) -> list[Line]:
        """Return what an expression was over some time."""
        answer = await self._get("query_range", query=expression, start=begin, end=end, step=step)
        return [
            Line(
                {name: value for name, value in series["metric"].items() if name != "__name__"},
                [(float(at), float(value)) for at, value in series["values"] if not math.isnan(float(value))],
            )
            for series in answer["result"]
        ]

    async def values(self, label: str, selector: str) -> list[str]:
        """Return the values that a label of some series has had, as a variable of a dashboard asks for them."""
        answer = await self._get(f"label/{label}/values", **{"match[]": selector})
        return [str(value) for value in answer]

    async def failing_rules(self) -> list[str]:
        """Return the rules that could not be evaluated, with the error."""
        groups = (await self._get("rules"))["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return [
            f"{rule['name']}: {rule['health']} {rule.get('lastError', '')}" for rule in rules if rule["health"] != "ok"
        ]

    async def _get(self, what: str, **parameters: Any) -> Any:
        async with self._session.get(f"{self._url}/api/v1/{what}", params=parameters) as response:
            answer = await response.json()
        if answer["status"] != "success":
            raise BenchmarkFailed(f"Prometheus does not take {parameters}: {answer.get('error')}")
        return answer["data"]


@asynccontextmanager
async def scraping(targets: Mapping[str, str], directory: Path) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that scrapes managers.

    Args:
        targets: Their addresses, by the names of their pods.
        directory: Where it keeps what it has.
    """
    rules = directory / "rules.yaml"
    rules.write_text(json.dumps({"groups": rule_groups(GROUPS)}), encoding="utf-8")
    configuration = directory / "prometheus.yaml"
    scraped = [
        {"targets": [address], "labels": {"namespace": NAMESPACE, "pod": pod}} for pod, address in targets.items()
    ]
    content = {
        "global": {"scrape_interval": f"{INTERVAL}s", "scrape_timeout": f"{INTERVAL}s", "evaluation_interval": "15s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": JOB, "static_configs": scraped}],
    }
    configuration.write_text(json.dumps(content), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    log = directory / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 - starting it takes a millisecond
            [
                program("prometheus"), f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address={address}", "--log.level=warn",
            ],
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            deadline = time.monotonic() + _START_TIMEOUT
            while not await succeeds(session, f"http://{address}/-/ready"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise BenchmarkFailed(f"Prometheus does not start: {log.read_text(errors='replace')[-1000:]}")
                await asyncio.sleep(0.1)
            yield Prometheus(f"http://{address}", session)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
