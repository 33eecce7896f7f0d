"""A running manager whose webhooks and status server are sent whatever there is, while it goes on with its work.

The suite sends some hundred bodies. `make fuzz`, which sets TRAINMASTER_FUZZ_REVIEWS and TRAINMASTER_FUZZ_REPORTS,
sends 100,000 and 20,000, and demands that the event loop never stood still for a second of CPU time, since others use
the machine, too.
"""

import asyncio
import io
import os
import re
import signal
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import orjson
import pytest
from support.authorities import Authority
from support.lives import Life, World
from support.oddrequests import answer_to, odd_body, odd_request
from support.processes import ManagerProcess, account_token, cluster_process
from support.reviews import KINDS, Reviews, largest_trainjob, review_of, wide_runtime
from support.statusserver import NAMESPACE, REPORT, Trainers
from support.training import apply_runtime, runtime

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.controller.webhooks.handlers import VALIDATE_TRAINJOB
from trainmaster.devcluster.listener import free_port
from trainmaster.devcluster.settings import GARBAGE_COLLECTION
from trainmaster.runtime.api.constants import status_path

WHOLE = bool(os.environ.get("TRAINMASTER_FUZZ_REVIEWS"))
REVIEWS = int(os.environ.get("TRAINMASTER_FUZZ_REVIEWS") or 300)
REPORTS = int(os.environ.get("TRAINMASTER_FUZZ_REPORTS") or 150)
AT_ONCE = 8
LARGEST_AT_ONCE = 50 if WHOLE else 8
REPORTERS = 60 if WHOLE else 3
PATIENCE = 120.0
"""Seconds after which a TrainJob that nothing was made of counts as stuck."""

STALL = 1.0
GOOD = orjson.dumps(REPORT)

_PANICS = re.compile(r"^controller_runtime_webhook_panics_total (\S+)$", re.MULTILINE)
_JSON = {"Content-Type": "application/json"}


@dataclass
class Fuzzed:
    """A manager, and what it has answered."""

    manager: ManagerProcess
    client: KubeClient
    trust: ssl.SSLContext
    webhooks: int
    status_server: int
    metrics: int
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By server and code: that of the review, or of the HTTP response if there is none."""

    others: int = 0
    """TrainJobs of others that were served meanwhile."""

    async def series(self, pattern: re.Pattern[str]) -> float:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self.metrics}/metrics") as response,
        ):
            found = pattern.search(await response.text())
        assert found, pattern
        return float(found[1])

    def session(self, port: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=self.trust, limit=0)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        return aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector, timeout=timeout)

    async def review(self, session: aiohttp.ClientSession, path: str, uid: str, body: bytes) -> None:
        """Send a review: its answer is a review, or that there is too much at once."""
        async with session.post(path, data=io.BytesIO(body), headers=_JSON) as response:
            if response.status == 429:
                assert int(response.headers["Retry-After"]) >= 1
                self.answers["webhooks, at once", 429] += 1
                return
            assert response.status == 200, body
            answer = orjson.loads(await response.read())["response"]
        code = answer["status"]["code"]
        assert code in (200, 400, 403, 413, 429), (answer, body)
        assert answer["uid"] == uid
        self.answers["webhooks", code] += 1

    async def report(self, session: aiohttp.ClientSession, path: str, token: str, body: bytes) -> None:
        """Send a report: the answer is never an error of the server."""
        async with session.post(path, data=body, headers={"Authorization": f"Bearer {token}"}) as response:
            await response.read()
            assert response.status < 500, body
            assert response.status != 429 or int(response.headers["Retry-After"]) >= 1
            self.answers["status server", response.status] += 1

    async def raw(self, server: str, port: int, sent: bytes) -> None:
        """Send bytes that may be no request."""
        code = await answer_to(port, sent, tls=self.trust)
        assert code is None or code < 500, sent
        self.answers[f"{server}, raw", code or 0] += 1


@asynccontextmanager
async def fuzzed(directory: Path) -> AsyncIterator[Fuzzed]:
    """Run a cluster and a manager that serves everything."""
    authority = Authority()
    certificate, key = authority.issue(directory)
    certificate.rename(directory / "tls.crt")
    key.rename(directory / "tls.key")
    (directory / "ca.crt").write_bytes(authority.pem)
    webhooks, status_server, metrics = free_port(), free_port(), free_port()
    configuration = {
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(directory)},
        "certManagement": {"enable": False},
        "featureGates": {"TrainJobStatus": True},
        "statusServer": {"port": status_server, "qps": 200, "burst": 400},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}", "secureServing": False},
    }
    async with cluster_process(directory, parts=frozenset({GARBAGE_COLLECTION})) as (cluster, client):
        await apply_runtime(client, runtime())
        await apply_runtime(client, wide_runtime())
        token = await account_token(client, "fuzzed")
        manager = ManagerProcess(cluster, "fuzzed", token=token, port=cluster.port, configuration=configuration)
        try:
            await manager.start()
            await manager.logged("the webhooks are served")
            await manager.logged("the status server is served")
            trust = ssl.create_default_context(cadata=authority.pem.decode())
            yield Fuzzed(manager, client, trust, webhooks, status_server, metrics)
            manager.signal(signal.SIGTERM)
            assert await manager.wait() == 0
        finally:
            await manager.kill()


async def serve_others(manager: Fuzzed) -> None:
    """Let TrainJobs of others come and go until cancelled: each gets its JobSet."""
    world = World(manager.client)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.run())
        while True:
            life = Life(world, f"other-{manager.others}")
            world.expect_within(PATIENCE)
            await life.create()
            await life.jobset()
            await life.delete()
            manager.others += 1


async def reporter(trainers: Trainers, name: str) -> tuple[str, str]:
    """Start a TrainJob that the manager makes a JobSet of; returns where its pod reports, and its token."""
    metadata = {"name": name, "namespace": NAMESPACE}
    obj = {"apiVersion": TRAINJOBS.api_version, "kind": TRAINJOBS.kind, "metadata": metadata}
    await trainers.client.create(TRAINJOBS, {**obj, "spec": {"runtimeRef": {"name": "processes"}}})
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                jobset = await trainers.client.get(JOBSETS, NAMESPACE, name)
                break
            except NotFound:
                await asyncio.sleep(0.05)
    pod = await trainers.start({**jobset, "apiVersion": JOBSETS.api_version, "kind": JOBSETS.kind})
    return status_path(NAMESPACE, name), await trainers.token(name, pod=pod)


async def send(count: int, one: Callable[[int], Awaitable[None]]) -> None:
    """Do something so many times, several at once."""
    numbers = iter(range(count))

    async def run() -> None:
        for number in numbers:
            await one(number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(run())


async def send_reviews(manager: Fuzzed, seed: int) -> None:
    reviews, random = Reviews(seed), Random(seed)
    stream, largest = iter(reviews), largest_trainjob()
    async with manager.session(manager.webhooks) as session:

        async def one(number: int) -> None:
            path, uid, body = next(stream)
            if number % 1000 == 500:
                await manager.review(session, VALIDATE_TRAINJOB, uid, review_of(largest, uid))
            elif number % 20 == 0:
                sent = odd_request(random, "a.b.c", paths=[*KINDS, "/", "/validate", "/%ff", "/é"])
                await manager.raw("webhooks", manager.webhooks, sent)
            else:
                await manager.review(session, path, uid, body)

        await send(REVIEWS, one)


async def send_largest(manager: Fuzzed) -> None:
    """As many of the largest as there are, all at once."""
    body = review_of(largest_trainjob(), "largest")
    async with manager.session(manager.webhooks) as session, asyncio.TaskGroup() as tasks:
        for _ in range(LARGEST_AT_ONCE):
            tasks.create_task(manager.review(session, VALIDATE_TRAINJOB, "largest", body))


async def send_reports(manager: Fuzzed, seed: int) -> None:
    trainers, random = Trainers(manager.client), Random(seed)
    await trainers.prepare()
    reporters = [await reporter(trainers, f"reports-{number}") for number in range(REPORTERS)]
    async with manager.session(manager.status_server) as session:

        async def one(number: int) -> None:
            path, token = reporters[number % len(reporters)]
            if number % 20 == 0:
                sent = odd_request(
                    random, token, paths=[path, *["/%ff", "/", f"{path}/", path.replace("reports", "é")]]
                )
                await manager.raw("status server", manager.status_server, sent)
                return
            if number % 10 == 1:
                head, claims, signature = token.split(".")
                token = f"{head}.{claims}.{random.randrange(10**6)}{signature[6:]}"
            await manager.report(session, path, token, GOOD if number % 3 == 0 else odd_body(random))

        await send(REPORTS, one)


@pytest.mark.timeout(600 + REVIEWS / 20)
async def test_whatever_is_sent_the_manager_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It neither ends nor answers with an error of its own, and others are served meanwhile."""
    async with fuzzed(tmp_path) as manager:
        stored: dict[str, Any] = {**runtime("rt"), "kind": "TrainingRuntime", "metadata": {"name": "rt"}}
        await manager.client.create(TRAINING_RUNTIMES, stored, namespace="default")
        others = asyncio.create_task(serve_others(manager))
        await send_reviews(manager, seed=1)
        await send_largest(manager)
        await send_reports(manager, seed=2)
        served = manager.others
        while manager.others < served + 2:
            assert not others.done(), others
            await asyncio.sleep(0.1)
        others.cancel()
        await asyncio.wait([others])
        assert await manager.series(_PANICS) == 0
        assert manager.manager.code is None
    assert "Traceback" not in manager.manager.log.read_text()
    lines = manager.manager.lines()
    assert [line for line in lines if line.level in ("error", "fatal")] == []
    stalls = [line.fields for line in lines if line.event == "the event loop stood still"]
    answers = manager.answers
    assert answers["webhooks", 200] > REVIEWS // 20, "hardly anything was admitted: the generator is of no use"
    assert answers["webhooks", 403] > REVIEWS // 20
    assert answers["status server", 200] > 0
    assert answers["status server", 422] > 0
    assert manager.others > (20 if WHOLE else 2)
    if WHOLE:
        with capsys.disabled():
            print(f"\n{dict(sorted(answers.items()))}")  # noqa: T201 - what was measured
            print(f"{manager.others} TrainJobs of others; stalls: {stalls}")  # noqa: T201 - likewise
        assert all(each["cpu_seconds"] < STALL for each in stalls), stalls
