"""The fault proxy: each fault is what a client of a broken network sees."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from support.audit import AuditLogReader
from support.commands import eventually
from support.devcluster.faults import StallWatch
from support.devcluster.faultycluster import FaultyCluster
from support.proxy import Direction, FaultProxy
from support.stack import manager
from support.training import apply_runtime, runtime, trainjob, until

from trainmaster.controller.kube.auth.loader import load_config
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.devcluster.crds.install import JOBSET_DEFINITIONS, TRAINER_DEFINITIONS, install_definitions
from trainmaster.devcluster.settings import GARBAGE_COLLECTION, ClusterSettings
from trainmaster.devcluster.state import StateDirectory


class Echo:
    """A server that answers every line with itself, and remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
        except OSError:
            pass
        finally:
            self.open -= 1
            writer.close()


Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[FaultProxy], Awaitable[Peer]]


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[FaultProxy]:
    async with await asyncio.start_server(echo.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with await FaultProxy.start("127.0.0.1", port) as proxy:
            yield proxy


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Opens connections through the proxy, and closes them in the end."""
    writers: list[asyncio.StreamWriter] = []

    async def connect(proxy: FaultProxy) -> Peer:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writers.append(writer)
        return reader, writer

    yield connect
    for writer in writers:
        writer.close()


async def say(peer: Peer, text: bytes) -> bytes:
    peer[1].write(text + b"\n")
    return (await peer[0].readline()).rstrip()


async def hears_nothing(peer: Peer, *, seconds: float = 0.2) -> bool:
    """Whether nothing arrives in this time, not even an end."""
    try:
        async with asyncio.timeout(seconds):
            await peer[0].read(1)
    except TimeoutError:
        return True
    return False


async def until_heard(echo: Echo, line: bytes) -> None:
    await eventually(lambda: line in echo.heard)


async def test_bytes_that_are_delayed_arrive_later_in_order_and_complete(
    proxy: FaultProxy, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    latency, on_its_way = proxy.latency, asyncio.Event()

    def asked(direction: Direction) -> float:
        on_its_way.set()
        return latency(direction)

    peer = await connect(proxy)
    proxy.delay(0.1)
    monkeypatch.setattr(proxy, "latency", asked)
    started = time.monotonic()
    peer[1].write(b"first\n")
    await on_its_way.wait()
    proxy.delay(0)
    assert [await peer[0].readline(), await say(peer, b"second")] == [b"first\n", b"second"]
    assert time.monotonic() - started >= 0.1
    proxy.delay(0.1, Direction.TO_CLIENT)
    started = time.monotonic()
    assert await say(peer, b"third") == b"third"
    assert time.monotonic() - started >= 0.1


async def test_a_black_hole_accepts_and_says_nothing_also_afterwards(
    proxy: FaultProxy, connect: Connect, echo: Echo
) -> None:
    proxy.black_hole(True)
    peer = await connect(proxy)
    peer[1].write(b"lost\n")
    assert await hears_nothing(peer)
    proxy.black_hole(False)
    peer[1].write(b"lost as well\n")
    assert await hears_nothing(peer)
    assert await say(await connect(proxy), b"new") == b"new"
    assert echo.heard == [b"new\n"]


async def test_an_open_connection_goes_on_only_if_it_lost_nothing(
    proxy: FaultProxy, connect: Connect, echo: Echo
) -> None:
    quiet, busy = await connect(proxy), await connect(proxy)
    for peer in (quiet, busy):
        await say(peer, b"hello")
    proxy.black_hole(True)
    busy[1].write(b"lost\n")
    assert await hears_nothing(busy)
    proxy.black_hole(False)
    busy[1].write(b"lost as well\n")
    assert await hears_nothing(busy)
    assert await say(quiet, b"still here") == b"still here"
    assert b"lost\n" not in echo.heard
    assert b"lost as well\n" not in echo.heard


async def test_where_answers_alone_vanish_the_server_acts(proxy: FaultProxy, connect: Connect, echo: Echo) -> None:
    peer = await connect(proxy)
    await say(peer, b"hello")
    proxy.black_hole(True, Direction.TO_CLIENT)
    peer[1].write(b"do it\n")
    await until_heard(echo, b"do it\n")
    assert await hears_nothing(peer)


async def test_refused_it_answers_on_the_same_port_again(proxy: FaultProxy, connect: Connect) -> None:
    peer = await connect(proxy)
    await say(peer, b"hello")
    proxy.cut(True)
    with pytest.raises(ConnectionResetError):
        await peer[0].read(1)
    with pytest.raises(ConnectionRefusedError):
        await connect(proxy)
    proxy.cut(False)
    assert await say(await connect(proxy), b"back") == b"back"


async def exists(client: KubeClient, resource: Resource, name: str) -> bool:
    try:
        await client.get(resource, "default", name)
    except NotFound:
        return False
    return True


async def test_nothing_is_made_again_for_a_trainjob_that_the_cache_does_not_know_to_be_gone(tmp_path: Path) -> None:
    """What is made for it is collected at once, which is an event, which lets it be made again, and so on."""
    state, audit = StateDirectory(tmp_path / "cluster"), AuditLogReader(tmp_path / "audit.log")
    parts = frozenset({GARBAGE_COLLECTION})
    async with FaultyCluster(
        ClusterSettings(state=state, port=0, parts=parts, audit_log=tmp_path / "audit.log")
    ) as cluster:
        await install_definitions(cluster.api, (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS))
        access = await load_config(kubeconfig=str(state.kubeconfig))
        async with KubeClient(access, user_agent="tests") as client:
            await apply_runtime(client, runtime())
            # It sees that there are no TrainJobs, then one, and no more.
            with cluster.faults.add(StallWatch(after=2), verb="watch", resource="trainjobs") as stalled:
                async with manager(access):
                    await client.create(TRAINJOBS, trainjob("gone"))
                    await until(lambda: exists(client, JOBSETS, "gone"))
                    assert stalled.count
                    await client.delete(TRAINJOBS, "default", "gone")
                    await until(lambda: is_quiet(cluster))
                    for resource in (JOBSETS, CONFIGMAPS):
                        assert not await exists(client, resource, "gone")
    made = Counter(write.resource for write in audit.read() if write.name.startswith("gone") and write.code == 201)
    assert made == {"trainjobs": 1, "configmaps": 1, "jobsets": 1}


async def is_quiet(cluster: FaultyCluster) -> bool:
    """Whether nothing is written for a while."""
    before = cluster.api.store.revision
    await asyncio.sleep(1)
    return cluster.api.store.revision == before
