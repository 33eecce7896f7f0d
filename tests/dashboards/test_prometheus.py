"""A real Prometheus scrapes real managers, and is asked for every panel of every dashboard."""

import asyncio
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from prometheus_client import generate_latest
from support.debian import program
from support.monitoring import prometheus
from support.monitoring.cluster import started
from support.monitoring.load import Load
from support.monitoring.prometheus import INTERVAL, RATE_INTERVAL, Prometheus

from bench.api import BenchmarkFailed
from trainmaster.metrics.alerts import JOB
from trainmaster.metrics.controller import MASTER_STATUS, LeaderMetrics
from trainmaster.metrics.dashboards import DASHBOARDS, Dashboard, Panel, Query, Row, Variable
from trainmaster.metrics.dashboards.model import QUERIES
from trainmaster.metrics.promql import Expression
from trainmaster.metrics.registry import REGISTRY

_VARIABLE: Final = re.compile(r"\$\w+")


@dataclass(frozen=True, slots=True)
class Answers:
    """What was answered between two moments."""

    found: list[str]
    """Titles of panels with a query that has an answer."""

    missing: list[str]
    """Queries without an answer that should have one, and variables without values."""

    empty: list[str]
    """Queries without an answer that may have none, with the reason."""


async def ask(prometheus: Prometheus, dashboard: Dashboard, begin: float, end: float) -> Answers:
    """Ask for everything that a dashboard shows."""
    answers = Answers([], [], [])
    for panel in dashboard.panels:
        for query in panel.queries:
            lines = await prometheus.query_range(_filled(query.expression), begin, end, INTERVAL)
            if any(line.points for line in lines):
                answers.found.append(panel.title)
            elif panel.may_be_empty:
                answers.empty.append(f"{panel.title} ({panel.may_be_empty}): {query.expression.text}")
            else:
                answers.missing.append(f"{panel.title}: {query.expression.text}")
    for variable in dashboard.variables:
        if not await prometheus.values(variable.name, _filled(variable.values)):
            answers.missing.append(f"the variable {variable.name} has no values")
    return answers


def _filled(expression: Expression) -> str:
    """Put in what Grafana does in place of the variables."""
    values = {"$__rate_interval": RATE_INTERVAL, "$job": JOB}
    return _VARIABLE.sub(lambda found: values.get(found[0], ".*"), expression.text)


HELD = QUERIES.series(MASTER_STATUS, name="of-this-test")
UNHEARD_OF = QUERIES.series(MASTER_STATUS, name="of-nobody")
DASHBOARD = Dashboard(
    uid="tried", title="Tried", description="",
    rows=(
        Row(
            "All",
            (
                Panel(title="Known", description="", queries=(Query(HELD, "{{pod}} {{name}}"),)),
                Panel(title="Unknown", description="", queries=(Query(UNHEARD_OF, "{{pod}}"),)),
                Panel(title="Not yet", description="", queries=(Query(UNHEARD_OF, "{{pod}}"),), may_be_empty="early"),
            ),
        ),
    ),
    variables=(Variable(name="name", label="Lease", values=UNHEARD_OF),),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _scrape_often(monkeypatch: pytest.MonkeyPatch) -> None:
    program("prometheus")
    monkeypatch.setattr(prometheus, "INTERVAL", 1)


async def test_every_panel_is_asked_for_and_what_is_missing_is_told(tmp_path: Path) -> None:
    LeaderMetrics("of-this-test").leading(now=True)
    # What other tests of this process have left in the registry, tens of thousands of series, is none of its business.
    registry = REGISTRY.restricted_registry(["leader_election_master_status"])

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), content_type="text/plain")

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0][:2]
        async with prometheus.scraping({"manager-a": f"{host}:{port}"}, tmp_path) as server:
            began = time.time()
            async with asyncio.timeout(60):
                while not (answers := await ask(server, DASHBOARD, began, time.time())).found:
                    await asyncio.sleep(0.2)
            assert await server.values("pod", "leader_election_master_status") == ["manager-a"]
            with pytest.raises(BenchmarkFailed, match="does not take"):
                await server.query_range("sum(", began, time.time(), 1)
    finally:
        await runner.cleanup()
    assert answers.found == ["Known"]
    assert [text.partition(": leader")[0] for text in answers.missing] == [
        "Unknown", "the variable name has no values",
    ]  # fmt: skip
    assert [text.partition(": leader")[0] for text in answers.empty] == ["Not yet (early)"]


@pytest.mark.timeout(600)
async def test_every_panel_has_data_after_minutes_of_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two managers, jobs that complete and fail in every way, a slow API server, a leader that is killed."""
    monkeypatch.setattr(prometheus, "INTERVAL", 3)
    async with started(tmp_path) as running, prometheus.scraping(running.metrics, tmp_path) as server:
        await asyncio.sleep(15)
        begin = time.time()
        await Load(running).run()
        answers = {each.uid: await ask(server, each, begin, time.time()) for each in DASHBOARDS}
        failing = await server.failing_rules()
    assert {uid: each.missing for uid, each in answers.items() if each.missing} == {}
    assert failing == []
