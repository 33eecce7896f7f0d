"""An API server that is away, for a short time and by real connections; `tests/sim/test_outage.py` has the long one."""

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
from support.training import apply_runtime, found, runtime, trainjob, until
from support.web import Probes, probed

from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.controller.webhooks.handlers import VALIDATE_TRAINJOB
from trainmaster.devcluster.listener import free_port

FAILED = "collection cannot be read, trying again"


@dataclass(frozen=True)
class Running:
    """A manager behind a network that can be cut."""

    wire: FaultProxy
    probes: Probes
    webhooks: str
    tls: ssl.SSLContext

    async def review(self, name: str, *, on: str) -> dict[str, object]:
        """Ask the webhook, as the API server would, about a new TrainJob."""
        body, headers = review_of(trainjob(name, on=on), "u-1"), {"Content-Type": "application/json"}
        url = f"{self.webhooks}{VALIDATE_TRAINJOB}"
        async with aiohttp.request("POST", url, data=body, headers=headers, ssl=self.tls) as answer:
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
    certificates, webhooks = serving_certificates(directory), free_port()
    server = urlsplit(stack.access.server)
    async with await FaultProxy.start(str(server.hostname), int(server.port or 0)) as wire:
        wire.cut(cut)
        access = replace(stack.access, server=f"https://127.0.0.1:{wire.port}")
        context = ssl.create_default_context(cafile=str(certificates.authority))
        async with probed(access, served(directory, webhooks)) as probes:
            if not cut:
                await answering(webhooks, certificates)
            yield Running(wire, probes, f"https://127.0.0.1:{webhooks}", context)


@pytest.mark.guarantee("R-27")
async def test_while_the_server_is_away_webhooks_answer_without_a_restart(stack: Stack, tmp_path: Path) -> None:
    """It stays alive and ready: a restart would cost the caches, which are all that there is."""
    async with running(stack, tmp_path / "certs") as manager:
        await manager.probes.until("readyz", status=200)
        with capture_logs() as logs:
            manager.wire.cut(True)
            await stack.client.create(TRAINJOBS, trainjob("meanwhile"))

            await until(lambda: any(each["event"] == FAILED for each in logs))
            assert (await manager.review("known", on="processes"))["allowed"] is True
            for probe in ("healthz", "readyz"):
                assert await manager.probes.ask(probe) == (200, "ok")
            assert not manager.probes.task.done()
            manager.wire.cut(False)
            await until(lambda: found(stack.client, JOBSETS, "meanwhile"))
        assert [each for each in logs if each["log_level"] == "error"] == []


@pytest.mark.guarantee("R-27")
@pytest.mark.usefixtures("impatient")
async def test_a_manager_that_starts_while_the_server_is_away_waits_and_says_why(stack: Stack, tmp_path: Path) -> None:
    """It does not exit: the pauses of a crash loop would outlast the absence. Each kind is told of once."""
    await stack.client.create(TRAINJOBS, trainjob("early"))
    with capture_logs() as logs:
        async with running(stack, tmp_path / "certs", cut=True) as manager:
            await manager.probes.until("readyz", "waiting for trainjobs", "refused the connection", status=500)
            assert (await manager.probes.ask("healthz"))[0] == 200
            tries = len([each for each in logs if each["event"] == FAILED])
            await until(lambda: tries + 30 < len([each for each in logs if each["event"] == FAILED]))
            loud = [each for each in logs if each["log_level"] in {"warning", "error"}]
            kinds = {each["resource"] for each in loud if "resource" in each}
            assert len(loud) <= len(kinds) + 1
            assert not manager.probes.task.done()
            manager.wire.cut(False)
            await until(lambda: found(stack.client, JOBSETS, "early"))
            await manager.probes.until("readyz", status=200)
