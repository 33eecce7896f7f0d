"""The probes and the metrics endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from support.scraped import OPEN_METRICS, fetch
from support.series import read_open_metrics
from support.web import get, listening

from trainmaster.controller.server import healthz as healthz_module
from trainmaster.controller.server.healthz import Healthz, metrics
from trainmaster.metrics.trainjobs import TIME_TO_JOBSET, exemplar_of, observe


@pytest.mark.guarantee("L-13", "M-8")
async def test_liveness_and_readiness_say_what_is_wrong() -> None:
    trouble: dict[str, str | None] = {"alive": None, "ready": None}
    healthz = Healthz()
    healthz.add_healthz_check("leaderElection", lambda: trouble["alive"])
    healthz.add_readyz_check("informer-sync", lambda: trouble["ready"])
    async with listening(healthz.application()) as port:
        assert (await get(port, "healthz"))[:2] == (200, "ok")
        assert (await get(port, "readyz"))[:2] == (200, "ok")
        trouble["ready"] = "waiting for pods"
        assert (await get(port, "healthz"))[:2] == (200, "ok")
        assert (await get(port, "readyz"))[:2] == (
            500,
            "[+]ping ok\n[-]informer-sync failed: waiting for pods\nreadyz check failed\n",
        )
        trouble["alive"] = "no renewal"
        assert (await get(port, "healthz"))[:2] == (
            500,
            "[+]ping ok\n[-]leaderElection failed: no renewal\nhealthz check failed\n",
        )


@pytest.mark.guarantee("M-8")
async def test_verbose_has_a_line_for_each_check_and_exclude_leaves_some_out() -> None:
    healthz = Healthz()
    healthz.add_readyz_check("well", lambda: None)
    async with listening(healthz.application()) as port:
        everything = "[+]ping ok\n[+]well ok\nreadyz check passed\n"
        assert (await get(port, "readyz?verbose"))[:2] == (200, everything)
        assert (await get(port, "readyz?verbose=true"))[:2] == (200, everything)
        healthz.add_readyz_check("ill", lambda: "a fever")
        assert (await get(port, "readyz?exclude=ill"))[:2] == (200, "ok")
        _, text, _ = await get(port, "readyz?exclude=ill&exclude=well&exclude=odd&verbose")
        assert text.splitlines() == [
            "[+]ping ok",
            "[+]well excluded: ok",
            "[+]ill excluded: ok",
            'warn: some health checks cannot be excluded: no matches for "odd"',
            "readyz check passed",
        ]


@pytest.mark.guarantee("M-8")
@pytest.mark.defect("B12")
async def test_each_check_can_be_asked_about_on_its_own_under_configured_names() -> None:
    renamed = Healthz(liveness="alive", readiness="ready").application()
    async with listening(renamed) as port:
        assert [(await get(port, name))[0] for name in ("alive", "ready", "healthz", "readyz")] == [200, 200, 404, 404]
    healthz = Healthz()
    healthz.add_readyz_check("well", lambda: None)
    healthz.add_readyz_check("ill", lambda: "a fever")
    async with listening(healthz.application()) as port:
        assert (await get(port, "readyz/well"))[:2] == (200, "ok")
        assert (await get(port, "readyz/ill"))[:2] == (500, "internal server error: a fever\n")
        assert (await get(port, "readyz/none"))[0] == 404
        assert (await get(port, "healthz/well"))[0] == 404
        assert (await get(port, "healthz/ping"))[:2] == (200, "ok")


@pytest.mark.guarantee("M-8")
async def test_checks_may_wait_raise_or_say_more_to_those_who_ask_for_details() -> None:
    def broken() -> str | None:
        raise ValueError("Bearer abc")

    async def waiting() -> str | None:
        await asyncio.sleep(0)
        return "not yet"

    notes: list[str] = []
    healthz = Healthz()
    healthz.add_readyz_check("informer-sync", lambda: None, note=lambda: notes[0] if notes else None)
    async with listening(healthz.application()) as port:
        assert (await get(port, "readyz?verbose"))[1].splitlines()[1] == "[+]informer-sync ok"
        notes.append("waiting for queues")
        assert (await get(port, "readyz?verbose"))[1].splitlines()[1] == "[+]informer-sync ok: waiting for queues"
        assert (await get(port, "readyz"))[:2] == (200, "ok")
        healthz.add_readyz_check("broken", broken)
        healthz.add_readyz_check("waiting", waiting)
        assert (await get(port, "readyz"))[1].splitlines()[2:4] == [
            "[-]broken failed: the check itself failed with ValueError",
            "[-]waiting failed: not yet",
        ]


@pytest.mark.guarantee("M-8")
def test_two_checks_of_one_name_are_refused() -> None:
    healthz = Healthz()
    healthz.add_readyz_check("certs", lambda: None)
    healthz.add_healthz_check("certs", lambda: None)
    with pytest.raises(ValueError, match="two checks called 'certs' of readyz"):
        healthz.add_readyz_check("certs", lambda: None)


async def test_open_metrics_are_served_to_whoever_asks_for_them() -> None:
    """With exemplars, which the other format has no place for."""
    observe(TIME_TO_JOBSET, 3.0, "exposed", exemplar=exemplar_of("team/exposed"))
    async with listening(metrics()) as port:
        text, content_type = await fetch(port, accept=OPEN_METRICS)
        assert content_type.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
        exemplars = [
            sample.exemplar.labels
            for family in read_open_metrics(text)
            for sample in family.samples
            if sample.exemplar and sample.labels.get("runtime") == "exposed"
        ]
        assert exemplars == [{"trainjob": "team/exposed"}]
        assert (text.count("# EOF"), text.endswith("\n# EOF\n")) == (1, True)
        for accept in ("text/plain;version=0.0.4", "*/*", ""):
            text, content_type = await fetch(port, accept=accept)
            assert content_type == "text/plain; version=0.0.4; charset=utf-8"
            assert "# HELP process_resident_memory_bytes" in text
            assert "team/exposed" not in text
            assert "# EOF" not in text


@pytest.mark.guarantee("P-35")
async def test_other_tasks_get_a_turn_after_each_family(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, seen = 0, []

    class Watchful(Collector):
        def collect(self) -> Iterator[Metric]:
            seen.append(turns)
            yield GaugeMetricFamily(f"family_{len(seen)}", "One of three")

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    registry = CollectorRegistry(auto_describe=False)
    for _ in range(3):
        registry.register(Watchful())
    seen.clear()
    monkeypatch.setattr(healthz_module, "REGISTRY", registry)
    counting = asyncio.create_task(count())
    async with listening(metrics()) as port:
        await fetch(port)
    counting.cancel()
    assert len(set(seen)) == 3
