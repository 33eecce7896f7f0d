"""The metrics server of a manager: TLS from the certificates of the webhooks, and who may read.

Against the embedded API server, which authenticates the tokens and authorizes their users.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.authorities import Authority
from support.processes import account_token
from support.service_accounts import allow_url
from support.stack import QUIET, Stack, api_server, manager

from trainmaster.controller.configuration import Configuration, Metrics, MetricsAuth, Tls, Webhook
from trainmaster.controller.server import server as server_module
from trainmaster.devcluster.listener import free_port


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path, rbac=True) as stack:
        yield stack


@dataclass
class Endpoint:
    """Metrics of a manager, by HTTPS."""

    port: int
    authority: Authority

    async def read(self, *, token: str = "", scheme: str = "https") -> tuple[int, str]:
        """Read them as a client that trusts the authority only."""
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{scheme}://127.0.0.1:{self.port}/metrics"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=context) as answer,
        ):
            return answer.status, await answer.text()

    async def served(self) -> None:
        """Wait until a TLS connection comes about."""
        async with asyncio.timeout(30):
            while True:
                with suppress(aiohttp.ClientError):
                    await self.read()
                    return
                await asyncio.sleep(0.02)


def certify(directory: Path, authority: Authority) -> None:
    directory.mkdir(exist_ok=True)
    certificate, key = authority.issue(directory)
    certificate.rename(directory / "tls.crt")
    key.rename(directory / "tls.key")


@asynccontextmanager
async def metrics_of(stack: Stack, directory: Path, *, auth: bool = False, **more: Any) -> AsyncIterator[Endpoint]:
    """Run a manager with secure metrics; yields where they are."""
    authority = Authority()
    certify(directory, authority)
    yielded = Endpoint(free_port(), authority)
    async with manager(stack.access, configuration=secured(directory, yielded.port, auth=auth, **more)):
        await yielded.served()
        yield yielded


def secured(directory: Path, port: int, *, auth: bool = False, **more: Any) -> Configuration:
    metrics = Metrics(bind_address=f"127.0.0.1:{port}", auth=MetricsAuth(enabled=auth))
    webhook = Webhook(enabled=False, cert_dir=str(directory))
    return QUIET.model_copy(update={"metrics": metrics, "webhook": webhook, **more})


@pytest.mark.guarantee("M-6")
async def test_secure_serving_is_tls_with_the_certificate_of_the_webhooks(stack: Stack, tmp_path: Path) -> None:
    async with metrics_of(stack, tmp_path / "certs") as endpoint:
        status, text = await endpoint.read()
        assert (status, "workqueue_depth" in text) == (200, True)
        with pytest.raises(aiohttp.ClientError):
            await endpoint.read(scheme="http")


@pytest.mark.guarantee("M-6")
async def test_secure_serving_follows_a_new_certificate(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "REFRESH_INTERVAL", 0.05)
    async with metrics_of(stack, tmp_path / "certs") as endpoint:
        successor = Authority("successor")
        certify(tmp_path / "certs", successor)
        endpoint.authority = successor
        await endpoint.served()


@pytest.mark.guarantee("M-6")
async def test_secure_serving_waits_for_a_certificate_and_says_so(stack: Stack, tmp_path: Path) -> None:
    port = free_port()
    with capture_logs() as logged:
        async with manager(stack.access, configuration=secured(tmp_path / "none", port)):
            pass
    (told,) = [entry for entry in logged if entry["event"] == "metrics are not served: there is no certificate"]
    assert str(tmp_path / "none") in told["error"]
    assert "metrics.secureServing" in told["hint"]


@pytest.mark.guarantee("M-6")
async def test_secure_serving_has_the_versions_and_suites_of_the_configuration(stack: Stack, tmp_path: Path) -> None:
    async with metrics_of(stack, tmp_path / "certs", tls=Tls(min_version="1.3")) as endpoint:
        assert await handshake(endpoint.port, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        with pytest.raises(ssl.SSLError):
            await handshake(endpoint.port, ssl.TLSVersion.TLSv1_2)


async def handshake(port: int, version: ssl.TLSVersion) -> str:
    """Connect with one version of TLS; returns which it was."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version

    def connect() -> str:
        with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as secure:
            return secure.version() or ""

    return await asyncio.to_thread(connect)


@pytest.mark.guarantee("M-6")
async def test_auth_lets_in_whom_rbac_allows_the_path(stack: Stack, tmp_path: Path) -> None:
    allowed, other = await account_token(stack.client, "prometheus"), await account_token(stack.client, "other")
    await allow_url(stack.client, "prometheus", "/metrics")
    with capture_logs() as logged:
        async with metrics_of(stack, tmp_path / "certs", auth=True) as endpoint:
            assert await endpoint.read() == (401, "Unauthorized\n")
            assert await endpoint.read(token=allowed[:-4] + "AAAA") == (401, "Unauthorized\n")
            user = "system:serviceaccount:default:other"
            assert await endpoint.read(token=other) == (403, f"Authorization denied for user {user}\n")
            status, text = await endpoint.read(token=allowed)
            assert (status, "workqueue_depth" in text) == (200, True)
    assert allowed[:20] not in str(logged)


@pytest.mark.guarantee("M-6")
async def test_auth_holds_without_tls_as_well(stack: Stack, tmp_path: Path) -> None:
    port = free_port()
    metrics = Metrics(bind_address=f"127.0.0.1:{port}", secure_serving=False, auth=MetricsAuth(enabled=True))
    async with manager(stack.access, configuration=QUIET.model_copy(update={"metrics": metrics})):
        assert await Endpoint(port, Authority()).read(scheme="http") == (401, "Unauthorized\n")
