"""The servers of the manager: probes, metrics, addresses."""

from __future__ import annotations

import aiohttp
import pytest

from trainmaster.controller.server.server import AddressInUse, metrics, parse_address, probes, serving


async def ask(port: int, path: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/{path}") as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_l13_liveness_and_readiness_say_what_is_wrong() -> None:
    trouble: dict[str, str | None] = {"alive": None, "ready": None}
    app = probes(
        liveness="healthz", readiness="readyz", is_alive=lambda: trouble["alive"], is_ready=lambda: trouble["ready"]
    )
    async with serving(app, "127.0.0.1:0", purpose="probes") as port:
        assert (await ask(port, "healthz"))[:2] == (200, "ok")
        assert (await ask(port, "readyz"))[:2] == (200, "ok")
        trouble["ready"] = "waiting for pods"
        assert (await ask(port, "healthz"))[:2] == (200, "ok")
        assert (await ask(port, "readyz"))[:2] == (500, "not ready: waiting for pods")
        trouble["alive"] = "no renewal"
        assert (await ask(port, "healthz"))[:2] == (500, "not healthy: no renewal")


async def test_b12_probes_answer_under_their_configured_names() -> None:
    app = probes(liveness="alive", readiness="ready", is_alive=lambda: None, is_ready=lambda: None)
    async with serving(app, "127.0.0.1:0", purpose="probes") as port:
        assert [(await ask(port, name))[0] for name in ("alive", "ready", "healthz", "readyz")] == [200, 200, 404, 404]


async def test_a_part_of_a_probe_can_be_asked_about_on_its_own() -> None:
    checks = {"readyz/well": lambda: None, "readyz/ill": lambda: "a fever"}
    app = probes(
        liveness="healthz", readiness="readyz", is_alive=lambda: None, is_ready=lambda: "a fever", checks=checks
    )
    async with serving(app, "127.0.0.1:0", purpose="probes") as port:
        assert (await ask(port, "readyz/well"))[:2] == (200, "ok")
        assert (await ask(port, "readyz/ill"))[:2] == (500, "failed: a fever")


async def test_metrics_are_served_in_the_format_of_prometheus() -> None:
    async with serving(metrics(), "127.0.0.1:0", purpose="metrics") as port:
        status, text, content_type = await ask(port, "metrics")
    assert status == 200
    assert "# HELP process_resident_memory_bytes" in text
    assert content_type.startswith("text/plain")


async def test_an_address_in_use_is_named() -> None:
    async with serving(metrics(), "127.0.0.1:0", purpose="metrics") as port:
        with pytest.raises(AddressInUse, match=rf"cannot serve probes on 127\.0\.0\.1:{port}: .*configuration"):
            async with serving(metrics(), f"127.0.0.1:{port}", purpose="probes"):
                pass


@pytest.mark.parametrize(
    ("address", "parsed"),
    [(":8443", (None, 8443)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9", ("::1", 9))],
)
def test_addresses_as_go_writes_them(address: str, parsed: tuple[str | None, int]) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize("address", ["8443", ":http", ":70000", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be host:port or :port"):
        parse_address(address)
