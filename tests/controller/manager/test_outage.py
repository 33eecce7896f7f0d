"""An API server that is away, for a short time and by real connections; `tests/sim/test_outage.py` has the long one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import orjson
import pytest
from structlog.testing import capture_logs
from support.admission import answering, served, serving_certificates
from support.proxy import FaultProxy
from support.reviews import review_of
from support.stack import Stack, api_server
from support.training import apply_runtime, runtime, trainjob, until

from trainmaster.controller.configuration import Health
from trainmaster.controller.kube.cache import backoff
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.controller.webhooks.handlers import VALIDATE_TRAINJOB
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, load_plugins


@dataclass(frozen=True)
class Running:
    """A manager behind a network that can be cut."""

    wire: FaultProxy
    task: asyncio.Task[None]
    probes: str
    webhooks: str
    tls: ssl.SSLContext

    async def probe(self, name: str) -> tuple[int, str]:
        try:
            async with aiohttp.request("GET", f"{self.probes}/{name}?verbose") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectorError:
            return 0, "nobody listens yet"

    async def review(self, name: str, *, on: str) -> dict[str, object]:
        """Ask the webhook, as the API server would, about a new TrainJob."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.tls)) as session:
            body = review_of(trainjob(name, on=on), "u-1")
            headers = {"Content-Type": "application/json"}
            async with session.post(f"{self.webhooks}{VALIDATE_TRAINJOB}", data=body, headers=headers) as answer:
                response: dict[str, object] = orjson.loads(await answer.read())["response"]
                return response


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        if stack.cluster is None:
            pytest.skip("other clusters are known by other names")
        await apply_runtime(stack.client, runtime())
        yield stack


@asynccontextmanager
async def running(stack: Stack, directory: Path, *, cut: bool = False) -> AsyncIterator[Running]:
    """Run a manager with probes and webhooks; with `cut` the server is away when it starts."""
    certificates = serving_certificates(directory)
    server = urlsplit(stack.access.server)
    probes, webhooks, stop = free_port(), free_port(), asyncio.Event()
    health = Health(health_probe_bind_address=f"127.0.0.1:{probes}")
    configuration = served(directory, webhooks).model_copy(update={"health": health})
    async with await FaultProxy.start(str(server.hostname), int(server.port or 0)) as wire:
        wire.cut(cut)
        access = replace(stack.access, server=f"https://127.0.0.1:{wire.port}")
        task = asyncio.create_task(Manager(access, configuration, Framework(load_plugins())).run(stop))
        context = ssl.create_default_context(cafile=str(certificates.authority))
        if not cut:
            await answering(webhooks, certificates)
        try:
            yield Running(wire, task, f"http://127.0.0.1:{probes}", f"https://127.0.0.1:{webhooks}", context)
        finally:
            stop.set()
            await task


async def has_jobset(stack: Stack, name: str) -> bool:
    try:
        await stack.client.get(JOBSETS, "default", name)
    except NotFound:
        return False
    return True


@pytest.mark.guarantee("R-27")
async def test_while_the_server_is_away_webhooks_answer_from_caches_and_nobody_restarts_it(
    stack: Stack, tmp_path: Path
) -> None:
    """It stays alive and ready: a restart would cost the caches, which are all that there is."""
    async with running(stack, tmp_path / "certs") as manager:
        await until(lambda: _is(manager, "readyz", 200))
        with capture_logs() as logs:
            manager.wire.cut(True)
            await stack.client.create(TRAINJOBS, trainjob("meanwhile"))

            async def noticed() -> bool:
                return any(each["event"] == "collection cannot be read, trying again" for each in logs)

            await until(noticed)
            assert (await manager.review("known", on="processes"))["allowed"] is True
            assert (await manager.probe("healthz"))[0] == 200
            assert (await manager.probe("readyz"))[0] == 200
            assert not manager.task.done()
            manager.wire.cut(False)
            await until(lambda: has_jobset(stack, "meanwhile"))
        assert [each for each in logs if each["log_level"] == "error"] == []


@pytest.mark.guarantee("R-27")
async def test_a_manager_that_starts_while_the_server_is_away_waits_and_says_why(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not exit: the pauses of a crash loop would outlast the absence. Each kind is told of once."""
    monkeypatch.setattr(backoff, "_CAP", 0.5)
    await stack.client.create(TRAINJOBS, trainjob("early"))
    with capture_logs() as logs:
        async with running(stack, tmp_path / "certs", cut=True) as manager:

            async def told() -> bool:
                status, text = await manager.probe("readyz")
                return status == 500 and "waiting for trainjobs" in text and "refused the connection" in text

            await until(told)
            assert (await manager.probe("healthz"))[0] == 200
            tries = len([each for each in logs if each["event"] == "collection cannot be read, trying again"])

            async def tried_again() -> bool:
                return tries + 30 < len(
                    [each for each in logs if each["event"] == "collection cannot be read, trying again"]
                )

            await until(tried_again)
            loud = [each for each in logs if each["log_level"] in {"warning", "error"}]
            kinds = {each["resource"] for each in loud if "resource" in each}
            assert len(loud) <= len(kinds) + 1
            assert not manager.task.done()
            manager.wire.cut(False)
            await until(lambda: has_jobset(stack, "early"))
            await until(lambda: _is(manager, "readyz", 200))


async def _is(manager: Running, probe: str, status: int) -> bool:
    return (await manager.probe(probe))[0] == status
