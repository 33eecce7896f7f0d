"""The probes and the metrics endpoint."""

from __future__ import annotations

from support.http import get, listening

from trainmaster.controller.server.healthz import metrics, probes


async def test_l13_liveness_and_readiness_say_what_is_wrong() -> None:
    trouble: dict[str, str | None] = {"alive": None, "ready": None}
    app = probes(
        liveness="healthz", readiness="readyz", is_alive=lambda: trouble["alive"], is_ready=lambda: trouble["ready"]
    )
    async with listening(app) as port:
        assert (await get(port, "healthz"))[:2] == (200, "ok")
        assert (await get(port, "readyz"))[:2] == (200, "ok")
        trouble["ready"] = "waiting for pods"
        assert (await get(port, "healthz"))[:2] == (200, "ok")
        assert (await get(port, "readyz"))[:2] == (500, "not ready: waiting for pods")
        trouble["alive"] = "no renewal"
        assert (await get(port, "healthz"))[:2] == (500, "not healthy: no renewal")


async def test_b12_probes_answer_under_their_configured_names() -> None:
    app = probes(liveness="alive", readiness="ready", is_alive=lambda: None, is_ready=lambda: None)
    async with listening(app) as port:
        assert [(await get(port, name))[0] for name in ("alive", "ready", "healthz", "readyz")] == [200, 200, 404, 404]


async def test_a_part_of_a_probe_can_be_asked_about_on_its_own() -> None:
    checks = {"readyz/well": lambda: None, "readyz/ill": lambda: "a fever"}
    app = probes(
        liveness="healthz", readiness="readyz", is_alive=lambda: None, is_ready=lambda: "a fever", checks=checks
    )
    async with listening(app) as port:
        assert (await get(port, "readyz/well"))[:2] == (200, "ok")
        assert (await get(port, "readyz/ill"))[:2] == (500, "failed: a fever")


async def test_metrics_are_served_in_the_format_of_prometheus() -> None:
    async with listening(metrics()) as port:
        status, text, content_type = await get(port, "metrics")
    assert status == 200
    assert "# HELP process_resident_memory_bytes" in text
    assert content_type.startswith("text/plain")
