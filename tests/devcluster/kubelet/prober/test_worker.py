"""Probes and hooks: when results count, and what is asked of servers."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from support.commands import TIMEOUT

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.prober import (
    HandlerResult,
    ProbeResult,
    Target,
    Threshold,
    run_handler,
    run_probes,
    validate_probes,
)
from trainmaster.devcluster.kubelet.supervisor_client import ExecResult
from trainmaster.runtime.jsontree import JsonObject


@pytest.mark.parametrize(
    ("results", "counted"),
    [("fff", "..f"), ("ffoff", "...."), ("ff" + "oo" + "fff", "...o..f"), ("o" + "o" + "f" * 4, ".o..ff")],
)
def test_results_count_when_they_come_often_enough_in_a_row(results: str, counted: str) -> None:
    threshold = Threshold({"successThreshold": 2, "failureThreshold": 3})
    seen = "".join(result if threshold.observe(result == "o") else "." for result in results)
    assert seen.startswith(counted)


class Probes:
    """Runs the probes of a container against prepared results; the last one of each kind is given for ever."""

    def __init__(self, **results: str) -> None:
        self.prepared = {kind: list(text) for kind, text in results.items()}
        self.results: list[ProbeResult] = []
        self.pauses: list[float] = []
        self.ran: list[str] = []

    async def run(self, container: JsonObject, *, until: Callable[[], bool] | None = None) -> None:
        """Probe until a condition holds or, without one, to the end."""

        async def run(probe: JsonObject) -> HandlerResult:
            kind = probe["kind"]
            self.ran.append(kind)
            left = self.prepared[kind]
            return HandlerResult((left.pop(0) if len(left) > 1 else left[0]) == "o", "said so")

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)
            await asyncio.sleep(0)

        task = asyncio.create_task(run_probes(container, run=run, report=self.results.append, sleep=sleep))
        async with asyncio.timeout(TIMEOUT):
            if until is None:
                await task
                return
            while not until():
                await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    @property
    def decisions(self) -> list[tuple[str, bool]]:
        return [(found.type, found.result.ok) for found in self.results if found.counts]


def probe(kind: str, **fields: Any) -> JsonObject:
    return {f"{kind}Probe": {"kind": kind, **fields}}


async def test_the_other_probes_wait_for_the_startup_probe() -> None:
    probes = Probes(startup="ffo", readiness="o", liveness="o")
    container = probe("startup") | probe("readiness") | probe("liveness")
    await probes.run(container, until=lambda: len(set(probes.ran)) == 3)
    assert probes.ran[:3] == ["startup", "startup", "startup"]
    assert "startup" not in probes.ran[3:]
    assert probes.decisions[0] == ("startup", True)


async def test_delays_and_periods_are_those_of_the_probe() -> None:
    probes = Probes(readiness="o")
    container = probe("readiness", initialDelaySeconds=5, periodSeconds=7)
    await probes.run(container, until=lambda: len(probes.ran) == 3)
    assert [pause for pause in probes.pauses if pause][:3] == [5, 7, 7]


async def test_readiness_comes_and_goes() -> None:
    probes = Probes(readiness="ofo")
    await probes.run(probe("readiness", failureThreshold=1), until=lambda: len(probes.results) >= 3)
    assert probes.decisions[:3] == [("readiness", True), ("readiness", False), ("readiness", True)]


async def test_every_failure_is_reported_even_if_it_does_not_count_yet() -> None:
    probes = Probes(liveness="f")
    await probes.run(probe("liveness", failureThreshold=3))
    assert [found.counts for found in probes.results] == [False, False, True]
    assert probes.results[0].result.output == "said so"


async def test_nothing_is_probed_after_a_startup_that_failed() -> None:
    """The container is about to be ended: a result that its end causes would be reported as one more failure."""
    probes = Probes(startup="f", readiness="o", liveness="o")
    await probes.run(probe("startup", failureThreshold=2) | probe("readiness") | probe("liveness"))
    assert probes.ran == ["startup", "startup"]
    assert probes.decisions == [("startup", False)]


async def test_a_liveness_that_failed_is_not_probed_again() -> None:
    probes = Probes(readiness="o", liveness="of")
    container = probe("readiness") | probe("liveness", failureThreshold=1)
    await probes.run(container, until=lambda: probes.ran.count("readiness") >= 10)
    assert probes.ran.count("liveness") == 2
    assert probes.decisions.count(("liveness", False)) == 1


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
    await web.TCPSite(runner, "127.0.0.1", 0).start()
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
