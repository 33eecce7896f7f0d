"""A real Prometheus scrapes real metrics, and is asked for a dashboard."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import generate_latest
from support.debian import program

from bench.api import BenchmarkFailed
from dashboards import prometheus
from dashboards.panels import ask
from trainmaster.metrics.controller import MASTER_STATUS, LeaderMetrics
from trainmaster.metrics.dashboards import Dashboard, Panel, Query, Row, Variable
from trainmaster.metrics.dashboards.model import QUERIES
from trainmaster.metrics.registry import REGISTRY

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
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        async with prometheus.scraping({"manager-a": f"{host}:{port}"}, tmp_path) as server:
            began = time.time()
            async with asyncio.timeout(60):
                while not (answers := await ask(server, DASHBOARD, began, time.time())).lines["Known"]:
                    await asyncio.sleep(0.2)
            assert await server.values("pod", "leader_election_master_status") == ["manager-a"]
            with pytest.raises(BenchmarkFailed, match="does not take"):
                await server.query_range("sum(", began, time.time(), 1)
    finally:
        await runner.cleanup()
    (line,) = answers.lines["Known"]
    assert line.name == "manager-a of-this-test"
    assert {value for _, value in line.points} == {1}
    assert [text.partition(": leader")[0] for text in answers.missing] == [
        "Tried: Unknown", "Tried: the variable name has no values",
    ]  # fmt: skip
    assert [text.partition(": leader")[0] for text in answers.empty] == ["Tried: Not yet (early)"]
