"""Credentials that are renewed: by several at once, and by their provider."""

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs

import pytest
from aiohttp import web
from support.authorities import Authority
from support.kubeconfigs import write_kubeconfig
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.auth.refresh import REFRESH_PERIOD, RENEWAL_PAUSE, RefreshingCredentials
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import ConfigurationError


class Numbered(RefreshingCredentials):
    """Credentials that count how often they were reloaded."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.reloads = 0
        self.entered = threading.Event()
        self.proceed = asyncio.Event()
        self.proceed.set()
        self.failing = False

    def _headers(self) -> Mapping[str, str]:
        return {"Number": str(self.reloads)}

    async def _reload(self) -> bool:
        self.entered.set()
        await self.proceed.wait()
        if self.failing:
            raise ConfigurationError("the file is gone")
        self.reloads += 1
        return True


@pytest.mark.guarantee("L-4")
async def test_a_reload_that_is_under_way_holds_up_no_other_request() -> None:
    """An identity provider that is slow to answer must not cost the election its lease: what we have is still good."""
    clock = VirtualClock()
    credentials = Numbered(clock)
    clock.step(REFRESH_PERIOD)
    credentials.proceed.clear()
    looking = asyncio.create_task(credentials.headers())
    await settle()
    others = [asyncio.create_task(credentials.headers()) for _ in range(10)]
    await settle()
    assert [other.result() for other in others] == [{"Number": "0"}] * 10
    credentials.proceed.set()
    assert await looking == {"Number": "1"}
    assert credentials.reloads == 1


async def test_refused_requests_wait_for_one_reload_that_is_under_way() -> None:
    credentials = Numbered(VirtualClock())
    credentials.proceed.clear()
    requests = [asyncio.create_task(credentials.renew()) for _ in range(10)]
    await settle()
    assert not any(request.done() for request in requests)
    credentials.proceed.set()
    assert await asyncio.gather(*requests) == [True] * 10
    assert credentials.reloads == 1


async def test_failed_reload_is_repeated_after_the_period_only() -> None:
    clock = VirtualClock()
    credentials = Numbered(clock)
    credentials.failing = True
    clock.step(REFRESH_PERIOD)
    assert await credentials.headers() == {"Number": "0"}
    credentials.failing = False
    assert await credentials.headers() == {"Number": "0"}
    clock.step(REFRESH_PERIOD)
    assert await credentials.headers() == {"Number": "1"}


async def test_refusals_in_a_row_do_not_reload_each_time() -> None:
    """A token that the server will never take must not run a plugin for each request."""
    clock = VirtualClock()
    credentials = Numbered(clock)
    assert await credentials.renew()
    assert not await credentials.renew()
    clock.step(RENEWAL_PAUSE)
    assert await credentials.renew()
    assert credentials.reloads == 2


async def test_reload_that_is_cancelled_leaves_the_way_free() -> None:
    clock = VirtualClock()
    credentials = Numbered(clock)
    credentials.proceed.clear()
    given_up = asyncio.create_task(credentials.renew())
    await settle()
    given_up.cancel()
    await settle()
    credentials.proceed.set()
    clock.step(RENEWAL_PAUSE)
    assert await credentials.renew()


async def test_two_threads_share_one_reload(clock: Any, until: Any) -> None:
    """The elector renews on its own loop with the credentials of the manager."""
    credentials = Numbered(clock)
    credentials.proceed.clear()
    ours = asyncio.create_task(credentials.renew())
    await until(credentials.entered.is_set)
    theirs = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(_renew(credentials))))
    await until(lambda: clock.slept)
    assert not theirs.done()
    credentials.proceed.set()
    assert await ours
    assert await theirs
    assert credentials.reloads == 1


async def _renew(credentials: RefreshingCredentials) -> bool:
    return await credentials.renew()


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
        given.append(parse_qs((await request.read()).decode())["refresh_token"][0])
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


async def test_no_token_goes_to_an_endpoint_without_tls(tmp_path: Path, serve: Serve, server: Any, clock: Any) -> None:
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
