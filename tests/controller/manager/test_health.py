"""The probes of a manager: what each of their checks means, asked as a kubelet asks."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from support.authorities import Authority
from support.stack import Stack, api_server

from trainmaster.controller.configuration import CertManagement, Configuration, Health, LeaderElection, Metrics, Webhook
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.manager import endpoints
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.server import server as server_module
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, load_plugins


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        yield stack


class Probes:
    """The probes of a manager that runs."""

    def __init__(self, port: int, stop: asyncio.Event) -> None:
        self.port = port
        self.stop = stop

    async def ask(self, path: str) -> tuple[int, str]:
        """Return status and text."""
        async with aiohttp.request("GET", f"http://127.0.0.1:{self.port}/{path}") as answer:
            return answer.status, await answer.text()

    async def until(self, path: str, *parts: str) -> str:
        """Ask until the text has some parts; returns it."""
        async with asyncio.timeout(30):
            while True:
                with suppress(aiohttp.ClientConnectorError):
                    _, text = await self.ask(path)
                    if all(part in text for part in parts):
                        return text
                await asyncio.sleep(0.02)


@asynccontextmanager
async def probed(access: RestConfig, directory: Path, *, delay: str = "0s") -> AsyncIterator[Probes]:
    """Run a manager with election and webhooks."""
    port = free_port()
    configuration = Configuration(
        webhook=Webhook(host="127.0.0.1", port=free_port(), cert_dir=str(directory)),
        metrics=Metrics(bind_address="0"),
        health=Health(health_probe_bind_address=f"127.0.0.1:{port}"),
        leader_election=LeaderElection(leader_elect=True, resource_namespace="default"),
        cert_management=CertManagement(enable=False),
        shutdown_delay_duration=delay,
    )
    stop = asyncio.Event()
    running = asyncio.create_task(Manager(access, configuration, Framework(load_plugins())).run(stop))
    try:
        yield Probes(port, stop)
    finally:
        stop.set()
        await running


def certify(directory: Path, *, valid: dt.timedelta = dt.timedelta(days=1)) -> None:
    directory.mkdir(exist_ok=True)
    certificate, key = Authority().issue(directory, valid=valid)
    certificate.rename(directory / "tls.crt")
    key.rename(directory / "tls.key")


@pytest.mark.guarantee("M-8")
async def test_readiness_breaks_down_and_ends_when_told_to_stop(stack: Stack, tmp_path: Path) -> None:
    certify(tmp_path / "certs")
    async with probed(stack.access, tmp_path / "certs", delay="1s") as probes:
        assert await probes.until("readyz?verbose", "check passed") == (
            "[+]ping ok\n[+]shutdown ok\n[+]informer-sync ok\n[+]leaderElection ok\n[+]webhook ok\n[+]certificate ok\n"
            "readyz check passed\n"
        )
        assert await probes.ask("readyz") == (200, "ok")
        assert await probes.ask("healthz?verbose") == (200, "[+]ping ok\n[+]leaderElection ok\nhealthz check passed\n")
        probes.stop.set()
        assert await probes.ask("readyz/shutdown") == (500, "internal server error: the manager was told to stop\n")
        assert await probes.ask("healthz") == (200, "ok")


@pytest.mark.guarantee("M-8")
async def test_readiness_fails_while_the_certificate_is_out_of_date(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "REFRESH_INTERVAL", 0.05)
    certify(tmp_path / "certs", valid=dt.timedelta(days=-1))
    async with probed(stack.access, tmp_path / "certs") as probes:
        text = await probes.until("readyz", "[+]webhook ok", "[-]certificate failed")
        assert f"the certificate in {tmp_path / 'certs/tls.crt'} expired at 20" in text
        assert await probes.ask("healthz") == (200, "ok")
        certify(tmp_path / "certs")
        await probes.until("readyz", "ok")


@pytest.mark.guarantee("M-8")
async def test_readiness_names_the_caches_that_are_not_filled_and_why(tmp_path: Path) -> None:
    certify(tmp_path / "certs")
    async with api_server(tmp_path, definitions=False) as stack, probed(stack.access, tmp_path / "certs") as probes:
        text = await probes.until("readyz", "[-]informer-sync failed: waiting for ", "jobsets.jobset.x-k8s.io")
        assert "[-]webhook failed: the webhooks are not served yet\n" in text
        assert await probes.ask("healthz") == (200, "ok")


@pytest.mark.guarantee("M-8")
async def test_liveness_asks_nothing_of_the_api_server(tmp_path: Path) -> None:
    """It is away: another process would not find it either."""
    certify(tmp_path / "certs")
    nobody = RestConfig(server=f"http://127.0.0.1:{free_port()}")
    async with probed(nobody, tmp_path / "certs") as probes:
        text = await probes.until("readyz/informer-sync", "jobsets", "trainjobs", "refused the connection")
        assert text.count("refused the connection") == 1, "one reason, said once"
        assert await probes.ask("healthz?verbose") == (200, "[+]ping ok\n[+]leaderElection ok\nhealthz check passed\n")


@pytest.mark.guarantee("M-8")
async def test_a_connection_to_the_probes_on_which_nothing_comes_is_closed(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are open to everybody."""
    monkeypatch.setattr(endpoints, "PROBES_OPTIONS", replace(endpoints.PROBES_OPTIONS, first_request_timeout=0.1))
    certify(tmp_path / "certs")
    async with probed(stack.access, tmp_path / "certs") as probes:
        await probes.until("healthz", "ok")
        reader, writer = await asyncio.open_connection("127.0.0.1", probes.port)
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()
    assert endpoints.PROBES_OPTIONS.first_request_timeout is not None
