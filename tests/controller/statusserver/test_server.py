"""The status server on its own port: certificates, authorities, probes, silent connections, odd requests."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.authorities import Authority
from support.authorities import Authority as Issuer
from support.commands import eventually
from support.oddrequests import answer_to, odd_request
from support.stack import Stack
from support.statusserver import NAMESPACE, OWNERS, REPORT, MovableClock, StatusClient, Trainers
from support.virtualtime import VirtualClock
from support.web import get, listening

from trainmaster.controller.configuration import CertManagement, Configuration, Plugins, Webhook
from trainmaster.controller.configuration import StatusServer as Settings
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.server import server as https_server
from trainmaster.controller.server.healthz import Healthz
from trainmaster.controller.statusserver import StatusServer
from trainmaster.controller.statusserver.ca_bundle import CABundle
from trainmaster.controller.statusserver.server import FIRST_REQUEST_TIMEOUT
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.api.constants import status_path

NEVER = 3600.0


class HurriedClock(MovableClock):
    """Waits take a moment only, or do not end."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds if seconds == NEVER else min(seconds, 0.02))


def configuration(directory: Path, **more: Any) -> Configuration:
    return Configuration(
        webhook=Webhook(cert_dir=str(directory)), status_server=Settings(port=free_port(), qps=0), **more
    )


class Running:
    """A status server that runs."""

    def __init__(self, server: StatusServer, port: int) -> None:
        self.server = server
        self.port = port
        self.enqueued = 0

    def enqueue(self) -> None:
        self.enqueued += 1

    async def post(self, issuer: Issuer, token: str) -> int:
        trust = ssl.create_default_context(cadata=issuer.pem.decode())
        url = f"https://127.0.0.1:{self.port}{status_path(NAMESPACE, 'train')}"
        headers = {"Authorization": f"Bearer {token}"}
        connector = aiohttp.TCPConnector(ssl=trust)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, json=REPORT, headers=headers) as answer,
        ):
            return answer.status


@asynccontextmanager
async def serving(
    stack: Stack, trainers: Trainers, directory: Path, *, clock: Clock | None = None
) -> AsyncIterator[Running]:
    settings = configuration(directory)
    running = Running(StatusServer(settings, clock=clock or HurriedClock()), settings.status_server.port)

    async def synced() -> None:
        pass

    task = asyncio.create_task(
        running.server.run(
            stack.access, trainers.cache, OWNERS, user_agent="tests", wait_for_sync=synced, enqueue_all=running.enqueue
        )
    )
    try:
        yield running
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_is_served_from_the_first_certificate_on(stack: Stack, trainers: Trainers, tmp_path: Path) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    async with serving(stack, trainers, tmp_path) as running:
        readiness, liveness = running.server.readiness, running.server.liveness
        await eventually(lambda: "for want of a certificate" in (readiness() or ""))
        assert liveness() is None, "another process would have no certificate either"
        issuer = Issuer()
        issuer.mount(tmp_path)
        await eventually(lambda: readiness() is None)
        assert await running.post(issuer, token) == 200
    assert readiness() == "the status server is not served any more"


@pytest.mark.defect("S6")
async def test_a_new_authority_and_its_certificate_are_taken_up(
    stack: Stack, trainers: Trainers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together: a pod that is told of the authority may report at once, whenever the server looks at its files."""
    monkeypatch.setattr(https_server, "REFRESH_INTERVAL", NEVER)
    token = await trainers.token("train", pod=await trainers.create("train"))
    old, new = Issuer("old"), Issuer("new")
    old.mount(tmp_path)
    async with serving(stack, trainers, tmp_path) as running:
        authority = running.server.plugin_options()["trainjobstatus"]["authority"]
        assert authority() == old.pem.decode()
        await eventually(lambda: running.server.readiness() is None)
        assert await running.post(old, token) == 200
        assert running.enqueued == 0
        new.mount(tmp_path)
        await eventually(lambda: running.enqueued == 1)
        assert authority() == new.pem.decode()
        assert await running.post(new, token) == 200


async def test_who_speaks_no_tls_or_nothing_leaves_no_trace(
    stack: Stack, trainers: Trainers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Issuer().mount(tmp_path)
    async with serving(stack, trainers, tmp_path) as running:
        await eventually(lambda: running.server.readiness() is None)
        with capture_logs() as logs:
            for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"):
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(sent)
                writer.write_eof()
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()
    assert [log for log in logs if log["log_level"] != "info"] == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_connection_without_a_request_is_closed(stack: Stack, trainers: Trainers, tmp_path: Path) -> None:
    issuer, clock = Issuer(), VirtualClock()
    issuer.mount(tmp_path)
    token = await trainers.token("train", pod=await trainers.create("train"))
    async with serving(stack, trainers, tmp_path, clock=clock) as running:
        await eventually(lambda: running.server.readiness() is None)
        trust = ssl.create_default_context(cadata=issuer.pem.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trust)
        assert await running.post(issuer, token) == 200, "by now both have shaken hands"
        await clock.advance(FIRST_REQUEST_TIMEOUT + 1)
        assert await reader.read() == b""
        writer.close()


def test_the_plugin_is_told_the_service_unless_the_configuration_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "kubeflow")
    settings = configuration(tmp_path)
    port = settings.status_server.port
    others = settings.model_copy(update={"plugins": Plugins(options={"other": {"a": 1}})})
    options = StatusServer(others).plugin_options()
    assert options["other"] == {"a": 1}
    assert options["trainjobstatus"]["server"] == f"https://kubeflow-trainer-controller-manager.kubeflow.svc:{port}"
    called = settings.model_copy(update={"cert_management": CertManagement(webhook_service_name="chosen")})
    assert StatusServer(called).plugin_options()["trainjobstatus"]["server"] == f"https://chosen.kubeflow.svc:{port}"
    given = Plugins(options={"trainjobstatus": {"server": "https://elsewhere"}})
    elsewhere = StatusServer(settings.model_copy(update={"plugins": given}))
    assert elsewhere.plugin_options()["trainjobstatus"]["server"] == "https://elsewhere"


async def test_the_probes_have_the_names_of_the_original(tmp_path: Path) -> None:
    healthz = Healthz()
    StatusServer(configuration(tmp_path)).add_checks(healthz)
    async with listening(healthz.application()) as port:
        assert (await get(port, "healthz/status-server-healthz"))[:2] == (200, "ok")
        status, text, _ = await get(port, "readyz/status-server-readyz")
    assert (status, text) == (500, "internal server error: the status server is not served yet\n")


ROUNDS = 600


async def test_nothing_that_is_sent_is_an_error_of_ours(
    http: StatusClient, trainers: Trainers, caplog: pytest.LogCaptureFixture
) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    random_ = random.Random(0)
    codes: set[int | None] = set()
    with capture_logs() as logs, caplog.at_level(logging.WARNING):
        for _ in range(ROUNDS):
            sent = odd_request(random_, token)
            code = await answer_to(http.port, sent)
            codes.add(code)
            assert code is None or code < 500, sent
            http.clock.pushed += 1
    assert {200, 403, 404, 422} <= codes
    assert not [log for log in logs if log["log_level"] in ("error", "critical") or "exc_info" in log]
    assert [record.getMessage() for record in caplog.records] == []
    http.clock.pushed += 60
    assert (await http.post("train", token)).code == 200


def test_only_certificates_leave_the_file(tmp_path: Path) -> None:
    authority = Authority()
    _, key = authority.issue(tmp_path)
    (tmp_path / "ca.crt").write_bytes(key.read_bytes() + b"a comment\n" + authority.pem + Authority("next").pem)
    bundle = CABundle(tmp_path)
    assert bundle.refresh()
    text = bundle.current()
    assert text is not None
    assert text.count("BEGIN CERTIFICATE") == 2
    assert "KEY" not in text
    assert "comment" not in text


@pytest.mark.parametrize(
    "content", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_an_unusable_bundle_is_logged_once_and_changes_nothing(tmp_path: Path, content: bytes) -> None:
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    bundle = CABundle(tmp_path)
    assert bundle.refresh()
    assert not bundle.refresh()
    (tmp_path / "ca.crt").write_bytes(content)
    with capture_logs() as logs:
        assert not bundle.refresh()
        assert not bundle.refresh()
    assert [log["event"] for log in logs] == ["the new authority for trainers cannot be used; the old one stays"]
    assert bundle.current() == authority.pem.decode()
    (tmp_path / "ca.crt").unlink()
    assert not bundle.refresh()
    assert bundle.current() == authority.pem.decode()
