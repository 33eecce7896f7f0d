"""Id tokens that are refreshed by their provider."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from support.authorities import Authority
from support.kubeconfigs import write_kubeconfig

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.config import ConfigurationError

Serve: TypeAlias = Callable[[ssl.SSLContext], Awaitable[Any]]


def id_token(*, expires: float) -> str:
    """A token whose base64 has letters that only the URL alphabet has."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires, "name": "ÿþ?>~~~"}).encode()).decode().rstrip("=")
    return f"e30.{claims}.signature"


async def test_id_token_is_refreshed_by_its_provider(tmp_path: Path, serve: Serve, clock: Any) -> None:
    """Before it expires and after a refusal, each time with the refresh token that the provider gave last."""
    authority = Authority()
    provider = await serve(authority.server_context(tmp_path))
    given: list[str] = []

    async def trade(request: web.Request) -> web.StreamResponse:
        form = parse_qs((await request.read()).decode())
        given.append(form["refresh_token"][0])
        number = len(given)
        return web.json_response({"id_token": id_token(expires=1e10 + number), "refresh_token": f"refresh-{number}"})

    described = provider.reply(200, {"token_endpoint": f"{provider.url}/token"})
    provider.on("list", described, described)
    provider.on("POST", trade, trade)
    provider_config = {
        "idp-issuer-url": provider.url,
        "client-id": "cli",
        "client-secret": "s",
        "refresh-token": "refresh-0",
        "id-token": id_token(expires=clock.now().timestamp() + 30),
        "idp-certificate-authority-data": base64.b64encode(authority.pem).decode(),
    }
    user = {"auth-provider": {"name": "oidc", "config": provider_config}}
    path = write_kubeconfig(tmp_path / "k", "http://one", user=user)
    config = await load_config(kubeconfig=path, clock=clock)
    assert await config.headers() == {"Authorization": f"Bearer {id_token(expires=1e10 + 1)}"}
    assert await config.credentials.renew()
    assert await config.headers() == {"Authorization": f"Bearer {id_token(expires=1e10 + 2)}"}
    assert given == ["refresh-0", "refresh-1"]
    assert provider.requests("POST")[0].headers["Authorization"] == "Basic Y2xpOnM="


async def test_provider_is_verified(tmp_path: Path, serve: Serve, clock: Any) -> None:
    """Also when the kubeconfig names no authority for it: a refresh token is as good as a password."""
    provider = await serve(Authority().server_context(tmp_path))
    provider_config = {"idp-issuer-url": provider.url, "client-id": "cli", "refresh-token": "r"}
    user = {"auth-provider": {"name": "oidc", "config": provider_config}}
    with pytest.raises(ConfigurationError, match=r"identity provider .* cannot be reached: .* was not accepted"):
        await load_config(kubeconfig=write_kubeconfig(tmp_path / "k", "http://one", user=user), clock=clock)
    assert provider.seen == []


async def test_provider_that_refuses(tmp_path: Path, serve: Serve, clock: Any) -> None:
    authority = Authority()
    provider = await serve(authority.server_context(tmp_path))
    provider.on("list", provider.reply(200, {"token_endpoint": f"{provider.url}/token"}))
    provider.on("POST", provider.reply(400, {"error": "invalid_grant", "hint": "secret"}))
    with pytest.raises(ConfigurationError, match=r"refused at .*/token: 400 invalid_grant; log in again") as caught:
        await load_config(kubeconfig=kubeconfig_of(tmp_path, provider.url, authority), clock=clock)
    assert "secret" not in str(caught.value)


async def test_query_of_the_token_endpoint_is_sent(tmp_path: Path, serve: Serve, clock: Any) -> None:
    """Some providers tell their tenants and policies apart by it (RFC 6749, 3.2)."""
    authority = Authority()
    provider = await serve(authority.server_context(tmp_path))
    provider.on("list", provider.reply(200, {"token_endpoint": f"{provider.url}/token?p=sign%2Din&empty="}))
    provider.on("POST", provider.reply(200, {"id_token": id_token(expires=1e10)}))
    await load_config(kubeconfig=kubeconfig_of(tmp_path, provider.url, authority), clock=clock)
    (request,) = provider.requests("POST")
    assert request.path == "/token"
    assert request.query == {"p": "sign-in", "empty": ""}


async def test_no_token_goes_to_a_token_endpoint_without_tls(
    tmp_path: Path, serve: Serve, server: Any, clock: Any
) -> None:
    authority = Authority()
    provider = await serve(authority.server_context(tmp_path))
    provider.on("list", provider.reply(200, {"token_endpoint": f"{server.url}/token"}))
    with pytest.raises(ConfigurationError, match=r"'http://.*/token', of the identity provider, is not https"):
        await load_config(kubeconfig=kubeconfig_of(tmp_path, provider.url, authority), clock=clock)
    assert server.seen == []


@pytest.mark.parametrize("issuer", ["http://127.0.0.1:1", "https://[::1", "https://provider:port", "provider"])
async def test_issuer_that_cannot_be_trusted_is_not_asked(tmp_path: Path, issuer: str, clock: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"of the identity provider, is not (a URL|https)"):
        await load_config(kubeconfig=kubeconfig_of(tmp_path, issuer, Authority()), clock=clock)


def kubeconfig_of(directory: Path, issuer: str, authority: Authority) -> str:
    """Write a kubeconfig whose user has a refresh token and no id token."""
    provider_config = {
        "idp-issuer-url": issuer,
        "client-id": "cli",
        "refresh-token": "r",
        "idp-certificate-authority-data": base64.b64encode(authority.pem).decode(),
    }
    user = {"auth-provider": {"name": "oidc", "config": provider_config}}
    return write_kubeconfig(directory / "k", "http://one", user=user)
