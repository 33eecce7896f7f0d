"""The one HTTP(S) server: addresses, and how it is without TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Never

import aiohttp
import pytest
from aiohttp import web
from support.authorities import Authority
from support.commands import eventually
from support.virtualtime import VirtualClock
from support.web import listening

from trainmaster.controller.configuration import Tls
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.manager.endpoints import METRICS_OPTIONS, PROBES_OPTIONS
from trainmaster.controller.server.certwatcher import REFRESH_INTERVAL, CertWatcher
from trainmaster.controller.server.server import AddressInUse, Server, ServerOptions


async def test_an_address_in_use_is_named() -> None:
    async with listening(web.Application()) as port:
        with pytest.raises(AddressInUse, match=rf"cannot serve probes on 127\.0\.0\.1:{port}: .*configuration"):
            async with listening(web.Application(), f"127.0.0.1:{port}", purpose="probes"):
                pass


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 404) for name in ("localhost:8081", "LOCALHOST", "127.0.0.1:80", "127.1.2.3", "[::1]:8081")),
        *((name, 421) for name in ("rebound.example:8081", "10.0.0.1", "localhost.evil.example", "[", "")),
    ],
)
async def test_on_loopback_without_tls_it_answers_only_who_asks_for_this_machine(host: str, status: int) -> None:
    """A page of the web whose name leads to 127.0.0.1 has the browser send that name."""
    async with listening(web.Application()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == str(status).encode()
        writer.close()


@asynccontextmanager
async def served(server: Server) -> AsyncIterator[None]:
    """Run a server, whose readiness is asked for without a connection; it is ready when the block begins."""
    running = asyncio.create_task(server.run(web.Application()))
    try:
        await eventually(lambda: server.readiness() is None)
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


OPTIONS = ServerOptions(purpose="tests", subject="it is", unreachable="it is not reachable")


async def refuse(*_arguments: object, **_options: object) -> Never:
    raise ConnectionRefusedError("refused")


@pytest.mark.guarantee("H-13")
async def test_a_server_is_ready_while_it_can_connect_to_itself_once_a_second_for_all_who_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was served and cannot be reached is a matter for another process; what is not served yet is not.

    Probes of any number of kubelets cost one connection a second, and none of them hears of an older one.
    """
    clock, dialled = VirtualClock(), 0
    open_connection = asyncio.open_connection

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal dialled
        dialled += 1
        await asyncio.sleep(0)
        return await open_connection(*arguments, **options)

    monkeypatch.setattr(asyncio, "open_connection", counted)
    server = Server("127.0.0.1:0", OPTIONS, clock=clock)
    assert (await server.check(), server.liveness()) == ("it is not served yet", None)
    async with served(server):
        for connections in (1, 2):
            assert await asyncio.gather(*(server.check() for _ in range(50))) == [None] * 50
            assert (dialled, server.liveness()) == (connections, None)
            await clock.advance(1.1)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "open_connection", refuse)
            await clock.advance(REFRESH_INTERVAL)
            assert server.readiness() == server.liveness() == "it is not reachable: refused"
        await clock.advance(REFRESH_INTERVAL)
        await eventually(lambda: server.readiness() is None)
    assert await server.check() == server.readiness() == "it is not served any more"


@pytest.mark.guarantee("H-13")
async def test_a_check_tells_why_callers_refuse_the_certificate(tmp_path: Path) -> None:
    """Time stands still, so that only another way to verify is a reason to connect again."""
    authority = Authority()
    authority.mount(tmp_path)
    verifications = list[tuple[ssl.SSLContext, str]]()
    certs = CertWatcher(tmp_path, Tls())
    server = Server("127.0.0.1:0", OPTIONS, clock=VirtualClock(), certs=certs, verifications=lambda: [*verifications])
    async with served(server):
        assert await server.check() is None
        for trusted, name, refusal in (
            (Authority("other"), "server", "unable to get local issuer certificate"),
            (authority, "server", None),
            (authority, "another", "Hostname mismatch, certificate is not valid for 'another'."),
        ):
            verifications[:] = [(ssl.create_default_context(cadata=trusted.pem.decode()), name)]
            said = await server.check()
            assert said == (refusal and f"it is served with a certificate that callers of {name} refuse: {refusal}")
        assert server.liveness() is None, "another process would show the same certificate"
        verifications.clear()
        assert await server.check() is None


@pytest.mark.guarantee("M-8")
@pytest.mark.parametrize("options", [PROBES_OPTIONS, METRICS_OPTIONS], ids=lambda options: options.purpose)
async def test_a_connection_on_which_nothing_comes_is_closed(options: ServerOptions) -> None:
    """Probes are open to everybody."""
    clock = VirtualClock()
    async with Server("127.0.0.1:0", options, clock=clock).listening(web.Application()) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        async with aiohttp.request("GET", f"http://{host}:{port}/") as answer:
            assert answer.status == 404, "by now both are there"
        await clock.advance((options.first_request_timeout or 0) + 1)
        assert await reader.read() == b""
        writer.close()


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
