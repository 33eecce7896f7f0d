"""The handlers of probes and hooks, against real servers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from support.commands import TIMEOUT

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.prober.handler import Target, run_handler, validate_probes
from trainmaster.devcluster.kubelet.supervisor_client import ExecResult


async def execute(argv: list[str]) -> ExecResult:
    if argv == ["hang"]:
        await asyncio.sleep(60)
    return ExecResult(int(argv[0]), "printed" if len(argv) > 1 else "")


def target(**ports: int) -> Target:
    """A container with the port 80, called `web`; `ports` say where that is locally."""
    container = {"name": "c", "ports": [{"name": "web", "containerPort": 80}]}
    local = {80: ports["web"]} if "web" in ports else {}
    return Target(container=container, address="127.0.0.1", ports=local, execute=execute)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/headers":
            return web.Response(status=200 if request.headers.get("X-Probe") == "yes" else 400)
        if request.path == "/slow":
            await asyncio.sleep(60)
        return web.Response(status=int(request.path.removeprefix("/") or 200))

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.mark.parametrize(("path", "ok"), [("", True), ("204", True), ("399", True), ("404", False), ("/500", False)])
async def test_http_statuses_from_200_to_399_are_success(port: int, path: str, ok: bool) -> None:
    result = await run_handler({"httpGet": {"path": path, "port": port}}, target(), timeout=TIMEOUT)
    assert result.ok is ok
    assert str(int(path.strip("/") or 200)) in result.output


async def test_named_ports_and_headers(port: int) -> None:
    handler = {"httpGet": {"path": "/headers", "port": "web", "httpHeaders": [{"name": "X-Probe", "value": "yes"}]}}
    assert (await run_handler(handler, target(web=port), timeout=TIMEOUT)).ok
    result = await run_handler({"tcpSocket": {"port": "unknown"}}, target(), timeout=TIMEOUT)
    assert (result.ok, result.output) == (False, "container 'c' has no port named 'unknown'")


async def test_a_port_that_was_not_rewritten_is_found_as_it_is_written(port: int) -> None:
    """The program may have its port in its own source."""
    written = Target(container={"name": "c"}, address="127.0.0.1", ports={port: closed_port()}, execute=execute)
    assert (await run_handler({"tcpSocket": {"port": port}}, written, timeout=TIMEOUT)).ok


def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        number: int = server.getsockname()[1]
        return number


@pytest.mark.parametrize("kind", ["tcpSocket", "httpGet"])
async def test_nobody_listens(kind: str) -> None:
    port = closed_port()
    result = await run_handler({kind: {"port": port}}, target(), timeout=TIMEOUT)
    assert not result.ok
    assert f"127.0.0.1:{port}" in result.output


async def test_time_is_limited(port: int) -> None:
    for handler in ({"httpGet": {"path": "/slow", "port": port}}, {"exec": {"command": ["hang"]}}):
        result = await run_handler(handler, target(), timeout=0.05)
        assert (result.ok, result.output) == (False, "timed out after 0.05s")


async def test_programs_succeed_with_exit_code_0() -> None:
    assert (await run_handler({"exec": {"command": ["0"]}}, target(), timeout=TIMEOUT)).ok
    failed = await run_handler({"exec": {"command": ["3"]}}, target(), timeout=TIMEOUT)
    assert (failed.ok, failed.output) == (False, "exit code 3")
    assert (await run_handler({"exec": {"command": ["1", "x"]}}, target(), timeout=TIMEOUT)).output == "printed"


async def test_sleeping_always_succeeds() -> None:
    assert (await run_handler({"sleep": {"seconds": 0}}, target(), timeout=None)).ok


def test_grpc_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(PodRejectedError, match="use exec, httpGet or tcpSocket"):
        validate_probes({"name": "c", "livenessProbe": {"grpc": {"port": 1}}})
    validate_probes({"name": "c", "livenessProbe": {"exec": {"command": ["true"]}}})
