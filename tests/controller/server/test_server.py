"""The one HTTP(S) server: addresses, and how it is without TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any, Never

import aiohttp
import pytest
from aiohttp import web
from support.authorities import Authority
from support.http import listening
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.server import server as server_module
from trainmaster.controller.server.certwatcher import CertWatcher, server_context
from trainmaster.controller.server.server import AddressInUse, Server, ServerOptions


async def test_an_address_in_use_is_named() -> None:
    async with listening(web.Application()) as port:
        with pytest.raises(AddressInUse, match=rf"cannot serve probes on 127\.0\.0\.1:{port}: .*configuration"):
            async with listening(web.Application(), f"127.0.0.1:{port}", purpose="probes"):
                pass


async def test_a_server_is_ready_while_it_can_connect_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was served and cannot be reached is a matter for another process; what is not served yet is not."""
    monkeypatch.setattr(server_module, "REFRESH_INTERVAL", 0.01)
    monkeypatch.setattr(server_module, "CHECKED_FOR", 0.0)
    options = ServerOptions(purpose="tests", subject="it is", unreachable="it is not reachable")
    server = Server("127.0.0.1:0", options, clock=SystemClock())
    assert (server.readiness(), server.liveness()) == ("it is not served yet", None)
    running = asyncio.create_task(server.run(web.Application()))

    async def until(readiness: str | None) -> None:
        async with asyncio.timeout(10):
            while server.readiness() != readiness:
                await asyncio.sleep(0.01)

    await until(None)
    assert server.liveness() is None

    async def refuse(*_arguments: object, **_options: object) -> Never:
        raise ConnectionRefusedError("refused")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "open_connection", refuse)
        await until("it is not reachable: refused")
        assert server.liveness() == server.readiness()
    await until(None)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert server.readiness() == "it is not served any more"


@pytest.mark.guarantee("H-13")
async def test_a_check_connects_for_all_who_ask_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes of any number of kubelets cost one connection a second, and none of them hears of an older one."""
    clock, dialled = VirtualClock(), 0
    open_connection = asyncio.open_connection

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal dialled
        dialled += 1
        await asyncio.sleep(0)
        return await open_connection(*arguments, **options)

    monkeypatch.setattr(asyncio, "open_connection", counted)
    options = ServerOptions(purpose="tests", subject="it is", unreachable="it is not reachable")
    server = Server("127.0.0.1:0", options, clock=clock)
    assert await server.check() == "it is not served yet"
    running = asyncio.create_task(server.run(web.Application()))
    async with asyncio.timeout(10):
        while server.readiness() is not None:
            await asyncio.sleep(0)
    assert dialled == 1
    assert await asyncio.gather(*(server.check() for _ in range(50))) == [None] * 50
    assert dialled == 1
    await clock.advance(1.1)
    assert await asyncio.gather(*(server.check() for _ in range(50))) == [None] * 50
    assert dialled == 2

    async def refuse(*_arguments: object, **_options: object) -> Never:
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(asyncio, "open_connection", refuse)
    await clock.advance(1.1)
    assert await server.check() == "it is not reachable: refused"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert await server.check() == "it is not served any more"


@pytest.mark.guarantee("H-13")
async def test_a_check_is_not_known_any_more_when_callers_verify_us_otherwise() -> None:
    """Whoever has just been told of an authority refuses what it has not signed, within that second as well."""
    callers: list[tuple[ssl.SSLContext, str]] = []
    options = ServerOptions(purpose="tests", subject="it is")
    server = Server("127.0.0.1:0", options, clock=VirtualClock(), verifications=lambda: callers)
    running = asyncio.create_task(server.run(web.Application()))
    async with asyncio.timeout(10):
        while server.readiness() is not None:
            await asyncio.sleep(0)
        assert await server.check() is None
        callers.append((ssl.create_default_context(), "somebody"))
        assert "that callers of somebody refuse" in str(await server.check())
        callers.clear()
        assert await server.check() is None
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.mark.guarantee("H-13")
async def test_a_check_tells_why_callers_refuse_the_certificate(tmp_path: Path) -> None:
    """Time stands still, so that only another way to verify is a reason to connect again."""
    authority, clock = Authority(), VirtualClock()
    certificate, key = authority.issue(tmp_path, name="server")
    certificate.rename(tmp_path / "tls.crt")
    key.rename(tmp_path / "tls.key")
    verifications = list[tuple[ssl.SSLContext, str]]()
    options = ServerOptions(purpose="tests", subject="it is", unreachable="it is not reachable")
    certs = CertWatcher(tmp_path, server_context)
    server = Server("127.0.0.1:0", options, clock=clock, certs=certs, verifications=lambda: [*verifications])
    running = asyncio.create_task(server.run(web.Application()))
    async with asyncio.timeout(10):
        while await server.check() is not None:
            await asyncio.sleep(0)
    for trusted, name, refusal in (
        (Authority("other"), "server", "unable to get local issuer certificate"),
        (authority, "server", None),
        (authority, "another", "Hostname mismatch, certificate is not valid for 'another'."),
    ):
        verifications[:] = [(ssl.create_default_context(cadata=trusted.pem.decode()), name)]
        said = await server.check()
        assert said == (refusal and f"it is served with a certificate that callers of {name} refuse: {refusal}")
    assert server.liveness() is None, "another process would show the same certificate"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.mark.guarantee("M-7")
async def test_while_draining_each_response_closes_its_connection() -> None:
    """Who keeps connections open would come here until the end, whatever a load balancer knows."""

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="as before")

    app = web.Application()
    app.add_routes([web.get("/", answer)])
    server = Server("127.0.0.1:0", ServerOptions(purpose="tests"), clock=SystemClock())
    async with server.listening(app) as (host, port), aiohttp.ClientSession() as session:
        url = f"http://{host}:{port}/"
        async with session.get(url) as response:
            assert "Connection" not in response.headers
        server.drain()
        for _ in range(2):
            async with session.get(url) as response:
                assert (await response.text(), response.headers["Connection"]) == ("as before", "close")
