"""The metrics server of a manager: TLS from the certificates of the webhooks, and who may read.

Against the embedded API server, which authenticates the tokens and authorizes their users.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs
from support.authorities import Authority
from support.commands import eventually
from support.processes import account_token
from support.service_accounts import allow_url
from support.stack import QUIET, api_server, manager

from trainmaster.controller.configuration import Configuration, Metrics, MetricsAuth, Webhook
from trainmaster.devcluster.listener import free_port


@dataclass(frozen=True)
class Endpoint:
    """Metrics of a manager."""

    port: int
    authority: Authority

    async def read(self, *, token: str = "", scheme: str = "https") -> tuple[int, str]:
        """Read them as a client that trusts the authority only."""
        context = ssl.create_default_context(cadata=self.authority.pem.decode())
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{scheme}://127.0.0.1:{self.port}/metrics"
        async with aiohttp.request("GET", url, headers=headers, ssl=context) as answer:
            return answer.status, await answer.text()

    async def is_served(self) -> bool:
        """Tell whether a TLS connection comes about."""
        try:
            return bool(await self.read())
        except aiohttp.ClientError:
            return False


def secured(directory: Path, port: int, *, auth: bool = False) -> Configuration:
    metrics = Metrics(bind_address=f"127.0.0.1:{port}", auth=MetricsAuth(enabled=auth))
    return QUIET.model_copy(update={"metrics": metrics, "webhook": Webhook(enabled=False, cert_dir=str(directory))})


@pytest.mark.guarantee("M-6")
async def test_secure_serving_waits_for_a_certificate_and_says_so(tmp_path: Path) -> None:
    with capture_logs() as logged:
        async with (
            api_server(tmp_path) as stack,
            manager(stack.access, configuration=secured(tmp_path / "none", free_port())),
        ):
            pass
    (told,) = [entry for entry in logged if entry["event"] == "metrics are not served: there is no certificate"]
    assert str(tmp_path / "none") in told["error"]
    assert "metrics.secureServing" in told["hint"]


@pytest.mark.guarantee("M-6")
async def test_secure_serving_lets_in_whom_rbac_allows_the_path(tmp_path: Path) -> None:
    """By TLS alone, with the certificate of the webhooks."""
    endpoint = Endpoint(free_port(), Authority())
    endpoint.authority.mount(tmp_path / "certs")
    async with api_server(tmp_path, rbac=True) as stack:
        allowed, other = await account_token(stack.client, "prometheus"), await account_token(stack.client, "other")
        await allow_url(stack.client, "prometheus", "/metrics")
        with capture_logs() as logged:
            async with manager(stack.access, configuration=secured(tmp_path / "certs", endpoint.port, auth=True)):
                await eventually(endpoint.is_served)
                with pytest.raises(aiohttp.ClientError):
                    await endpoint.read(scheme="http")
                assert await endpoint.read() == (401, "Unauthorized\n")
                assert await endpoint.read(token=allowed[:-4] + "AAAA") == (401, "Unauthorized\n")
                user = "system:serviceaccount:default:other"
                assert await endpoint.read(token=other) == (403, f"Authorization denied for user {user}\n")
                status, text = await endpoint.read(token=allowed)
                assert (status, "workqueue_depth" in text) == (200, True)
    assert allowed[:20] not in str(logged)
