"""The status server on its own port: certificates, authorities, probes, connections that say nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import unused_port
from structlog.testing import capture_logs
from support.authorities import Authority as Issuer
from support.progress import NAMESPACE, REPORT, MovableClock, Trainers
from support.stack import Stack
from support.virtualtime import VirtualClock

from trainmaster.controller.configuration import Configuration, Health, Plugins, StatusServer, Webhook
from trainmaster.controller.statusserver import Progress
from trainmaster.controller.statusserver import server as status_serving
from trainmaster.controller.statusserver.authority import Authority
from trainmaster.controller.statusserver.feature import operator_namespace
from trainmaster.controller.statusserver.memory import Memory
from trainmaster.controller.statusserver.throttle import Throttle
from trainmaster.runtime.api.constants import status_path


class HurriedClock(MovableClock):
    """Waits take a moment only."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.02))


def certify(directory: Path, issuer: Issuer) -> None:
    certificate, key = issuer.issue(directory)
    certificate.rename(directory / "tls.crt")
    key.rename(directory / "tls.key")
    (directory / "ca.crt").write_bytes(issuer.pem)


def configuration(directory: Path, **more: Any) -> Configuration:
    return Configuration(
        webhook=Webhook(cert_dir=str(directory)), status_server=StatusServer(port=unused_port(), qps=0), **more
    )


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


class Running:
    """A status server that runs."""

    def __init__(self, progress: Progress, port: int) -> None:
        self.progress = progress
        self.port = port
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

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
async def serving(stack: Stack, trainers: Trainers, directory: Path) -> AsyncIterator[Running]:
    settings = configuration(directory)
    running = Running(Progress(settings, clock=HurriedClock()), settings.status_server.port)

    async def filled() -> None:
        pass

    task = asyncio.create_task(
        running.progress.run(
            stack.access, trainers.cache, user_agent="tests", wait_filled=filled, wake_all=running.wake
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
        readiness, liveness = running.progress.readiness, running.progress.liveness
        await until(lambda: "for want of a certificate" in (readiness() or ""))
        assert liveness() is None, "another process would have no certificate either"
        issuer = Issuer()
        certify(tmp_path, issuer)
        await until(lambda: readiness() is None)
        assert await running.post(issuer, token) == 200
    assert readiness() == "the status server is not served any more"


async def test_trainer_s6_a_new_authority_and_its_certificate_are_taken_up(
    stack: Stack, trainers: Trainers, tmp_path: Path
) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    old, new = Issuer("old"), Issuer("new")
    certify(tmp_path, old)
    async with serving(stack, trainers, tmp_path) as running:
        authority = running.progress.plugin_options({})["trainjobstatus"]["authority"]
        assert authority() == old.pem.decode()
        await until(lambda: running.progress.readiness() is None)
        assert await running.post(old, token) == 200
        assert running.woken == 0
        certify(tmp_path, new)
        await until(lambda: running.woken == 1)
        assert authority() == new.pem.decode()

        async def served() -> bool:
            try:
                return await running.post(new, token) == 200
            except aiohttp.ClientSSLError:
                return False

        async with asyncio.timeout(30):
            while not await served():
                await asyncio.sleep(0.02)


async def test_who_speaks_no_tls_or_nothing_leaves_no_trace(
    stack: Stack, trainers: Trainers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certify(tmp_path, Issuer())
    async with serving(stack, trainers, tmp_path) as running:
        await until(lambda: running.progress.readiness() is None)
        with capture_logs() as logs:
            for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"):
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(sent)
                writer.write_eof()
                async with asyncio.timeout(10):
                    with suppress(ConnectionError):
                        await reader.read()
                writer.close()
    assert [log for log in logs if log["log_level"] != "info"] == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_connection_without_a_request_is_closed(
    stack: Stack, trainers: Trainers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_serving, "FIRST_REQUEST_TIMEOUT", 1.0)
    issuer = Issuer()
    certify(tmp_path, issuer)
    async with serving(stack, trainers, tmp_path) as running:
        await until(lambda: running.progress.readiness() is None)
        trust = ssl.create_default_context(cadata=issuer.pem.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=trust)
        async with asyncio.timeout(8):
            assert await reader.read() == b""
        writer.close()


def test_the_plugin_is_told_the_service_unless_the_configuration_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "kubeflow")
    settings = configuration(tmp_path)
    port = settings.status_server.port
    options = Progress(settings).plugin_options({"other": {"a": 1}})
    assert options["other"] == {"a": 1}
    assert options["trainjobstatus"]["server"] == f"https://kubeflow-trainer-controller-manager.kubeflow.svc:{port}"
    given = Plugins(options={"trainjobstatus": {"server": "https://elsewhere"}}).options
    assert Progress(settings).plugin_options(given)["trainjobstatus"]["server"] == "https://elsewhere"


def test_outside_of_a_cluster_the_namespace_is_that_of_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    assert operator_namespace() == "kubeflow-system"


def test_the_probes_have_the_names_of_the_original(tmp_path: Path) -> None:
    checks = Progress(configuration(tmp_path)).checks(Health())
    assert set(checks) == {"healthz/status-server-healthz", "readyz/status-server-readyz"}
    assert checks["readyz/status-server-readyz"]() == "the status server is not served yet"


# The authority


def test_only_certificates_leave_the_file(tmp_path: Path) -> None:
    issuer = Issuer()
    _, key = issuer.issue(tmp_path)
    (tmp_path / "ca.crt").write_bytes(key.read_bytes() + b"a comment\n" + issuer.pem + Issuer("next").pem)
    authority = Authority(tmp_path)
    assert authority.refresh()
    text = authority.current()
    assert text is not None
    assert text.count("BEGIN CERTIFICATE") == 2
    assert "KEY" not in text
    assert "comment" not in text


@pytest.mark.parametrize(
    "content", [b"", b"nothing", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_an_unusable_authority_is_told_once_and_changes_nothing(tmp_path: Path, content: bytes) -> None:
    issuer = Issuer()
    (tmp_path / "ca.crt").write_bytes(issuer.pem)
    authority = Authority(tmp_path)
    assert authority.refresh()
    assert not authority.refresh()
    (tmp_path / "ca.crt").write_bytes(content)
    with capture_logs() as logs:
        assert not authority.refresh()
        assert not authority.refresh()
    assert [log["event"] for log in logs] == ["the new authority for trainers cannot be used; the old one stays"]
    assert authority.current() == issuer.pem.decode()
    (tmp_path / "ca.crt").unlink()
    assert not authority.refresh()
    assert authority.current() == issuer.pem.decode()


# Bounds


def test_what_is_remembered_expires_and_is_bounded() -> None:
    clock = VirtualClock()
    memory: Memory[str, int] = Memory(limit=2, clock=clock)
    memory.put("a", 1, seconds=10)
    memory.put("b", 2, seconds=20)
    assert memory.get("a") == 1
    memory.put("c", 3, seconds=20)
    assert (memory.get("a"), memory.get("b"), memory.get("c")) == (1, None, 3)
    clock.step(10)
    assert (memory.get("a"), memory.get("c"), len(memory)) == (None, 3, 1)


def test_each_key_has_its_own_bucket() -> None:
    clock = VirtualClock()
    throttle: Throttle[str] = Throttle(rate=0.5, burst=2, limit=100, clock=clock)
    assert [throttle.take("a") for _ in range(3)] == [0, 0, 2]
    assert throttle.take("b") == 0
    clock.step(1)
    assert throttle.take("a") == 1
    clock.step(1)
    assert (throttle.wait_for("a"), throttle.take("a"), throttle.take("a")) == (0, 0, 2)
