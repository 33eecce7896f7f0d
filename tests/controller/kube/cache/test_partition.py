"""Informers of named namespaces: a reflector for each, and one store."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.informers import Ear, Script, bookmark, event, pod, running
from support.series import value_of
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.errors import Forbidden, NotFound
from trainmaster.controller.kube.rest.resources import NAMESPACES, PODS, Resource
from trainmaster.runtime.jsontree import JsonObject


class Server:
    """A server that is told what to say of each namespace; what is in `refusals` it says instead."""

    def __init__(self, clock: VirtualClock) -> None:
        self.namespaces: dict[str | None, Script] = defaultdict(lambda: Script(clock))
        self.refusals: dict[str | None, Exception] = {}
        self.asked: list[str | None] = []

    async def list_bytes(self, resource: Resource, namespace: str | None = None, **_: Any) -> bytes:
        raise self.refusals[namespace]

    @asynccontextmanager
    async def watch(self, resource: Resource, *, namespace: str | None = None, **asked: Any) -> AsyncIterator[Any]:
        self.asked.append(namespace)
        if namespace in self.refusals:
            raise self.refusals[namespace]
        async with self.namespaces[namespace].watch(resource, **asked) as stream:
            yield stream

    def serve(self) -> None:
        """Refuse nothing any more."""
        self.refusals.clear()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def server(clock: VirtualClock) -> Server:
    return Server(clock)


def pod_in(namespace: str, name: str, version: int) -> JsonObject:
    return pod(name, version, namespace=namespace, uid=f"uid-{namespace}-{name}")


def absent() -> NotFound:
    return NotFound(status=404, reason="NotFound")


@pytest.mark.guarantee("S-2", "S-3")
async def test_a_snapshot_of_one_namespace_replaces_nothing_of_another(server: Server, clock: VirtualClock) -> None:
    informer = Informer(server, PODS, namespaces=["a", "b"], clock=clock)
    informer.store.add_indexer("all", lambda _: ["x"])
    ear = Ear(informer)
    async with running(informer):
        await settle()
        await server.namespaces["a"].send(event("ADDED", pod_in("a", "one", 1)), bookmark(5, end=True))
        assert not informer.has_synced
        await server.namespaces["b"].send(event("ADDED", pod_in("b", "two", 2)), bookmark(7, end=True))
        assert informer.has_synced
        assert ear.heard == ["+one!", "+two!"]
        expired = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
        await server.namespaces["a"].send(expired)
        await settle()
        await server.namespaces["a"].send(event("ADDED", pod_in("a", "three", 8)), bookmark(9, end=True))
        assert sorted(informer.store.keys()) == ["a/three", "b/two"]
        assert sorted(informer.store.index_keys("all", "x")) == ["a/three", "b/two"]
        assert informer.store.keys("a") == ["a/three"]
        assert ear.heard[2:] == ["-one", "+three"]
        assert informer.store.bytes == sum(map(informer.store.size, informer.store.keys()))


@pytest.mark.guarantee("C-4")
async def test_versions_are_reached_by_namespace(server: Server, clock: VirtualClock) -> None:
    """A write in a quiet namespace has not been seen because another one is busy, and a busy one waits for no other."""
    informer = Informer(server, PODS, namespaces=["a", "b"], clock=clock)
    store = informer.store
    async with running(informer):
        await settle()
        for namespace in ("a", "b"):
            await server.namespaces[namespace].send(bookmark(5, end=True))
        await server.namespaces["b"].send(event("ADDED", pod_in("b", "two", 8)))
        assert (store.reached("a/one"), store.reached("b/any"), store.resource_version) == (5, 8, 8)
        await server.namespaces["a"].send(bookmark(6))
        assert store.reached("a/one") == 6


@pytest.mark.guarantee("C-4")
def test_what_is_read_as_a_whole_reaches_its_versions_as_a_whole() -> None:
    store = Store()
    store.replace([], resource_version="7")
    assert (store.reached("a/one"), store.reached("one")) == (7, 7)


async def test_cluster_scoped_kinds_are_read_as_a_whole(server: Server, clock: VirtualClock) -> None:
    async with running(Informer(server, NAMESPACES, namespaces=["a", "b"], clock=clock)):
        await settle()
    assert server.asked == [None]


@pytest.mark.guarantee("E-7")
async def test_an_absent_kind_is_looked_for_once_every_ten_seconds_whatever_the_number_of_namespaces(
    server: Server, clock: VirtualClock
) -> None:
    """When it is there, all namespaces are read at once."""
    names = [f"team-{number}" for number in range(20)]
    server.refusals = {name: absent() for name in names}
    informer = Informer(server, PODS, namespaces=names, clock=clock)
    with capture_logs() as logs:
        async with running(informer):
            await clock.advance(0.1)
            assert len(server.asked) == 20
            await clock.advance(600)
            assert len(server.asked) == 80
            server.serve()
            await clock.advance(10)
            assert set(server.asked[80:]) == {"team-0"}
            await server.namespaces["team-0"].send(bookmark(1, end=True))
            assert len(set(server.asked[80:])) == 20
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == [
        "collection cannot be read, trying again"
    ]


@pytest.mark.guarantee("E-7")
async def test_another_namespace_looks_for_an_absent_kind_when_the_first_is_refused(
    server: Server, clock: VirtualClock
) -> None:
    """A namespace that is deleted takes its Role along, so that nothing can be found out there any more."""
    server.refusals = {"a": absent(), "b": absent()}
    informer = Informer(server, PODS, namespaces=["a", "b"], clock=clock)
    async with running(informer):
        await clock.advance(0.1)
        server.refusals["a"] = Forbidden(status=403)
        await clock.advance(10)
        server.asked.clear()
        del server.refusals["b"]
        await clock.advance(10)
        assert "b" in server.asked
        await server.namespaces["b"].send(bookmark(1, end=True))
        assert informer.partitions["b"].has_synced
        assert "no permission" in (informer.failure or "")


async def test_a_namespace_waits_for_what_it_is_told_to_wait_for(server: Server, clock: VirtualClock) -> None:
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def open_for(namespace: str) -> None:
        await gates[namespace].wait()

    async with running(Informer(server, PODS, namespaces=["a", "b"], start_after=open_for, clock=clock)):
        await settle()
        assert server.asked == []
        gates["b"].set()
        await settle()
        assert server.asked == ["b"]


async def test_a_cache_is_as_old_as_what_it_heard_of_the_server_last(server: Server, clock: VirtualClock) -> None:
    """In namespaces it is the one that waits longest; a bookmark is enough, also one that says nothing new."""

    def age() -> float | None:
        return value_of("trainmaster_informer_age_seconds", {"resource": "aging"})

    async with running(Informer(server, PODS, namespaces=["a", "b"], clock=clock, name="aging")):
        await clock.advance(3)
        assert age() == 3
        for namespace in ("a", "b"):
            await server.namespaces[namespace].send(bookmark(5, end=True))
        assert age() == 0
        await clock.advance(60)
        await server.namespaces["a"].send(event("ADDED", pod_in("a", "one", 6)))
        assert age() == 60
        await server.namespaces["b"].send(bookmark(5))
        assert age() == 0
        await clock.advance(20)
        await server.namespaces["b"].send(bookmark(7))
        assert age() == 20


def cache_metrics(name: str) -> tuple[float | None, ...]:
    """Whether a cache is full, how old it is, and how often it could not be read."""
    names = ("synced", "age_seconds", "failures_total")
    return tuple(value_of(f"trainmaster_informer_{each}", {"resource": name}) for each in names)


async def test_of_an_optional_kind_nothing_is_waited_for_nor_old_nor_failing(
    server: Server, clock: VirtualClock
) -> None:
    """Alerts look at these three: a cluster that lacks what it needs not have is healthy."""
    server.refusals = {None: absent()}
    async with running(Informer(server, PODS, optional=True, clock=clock, name="left out")):
        await clock.advance(600)
        assert cache_metrics("left out") == (1, 0, 0)
        server.refusals = {None: Forbidden(status=403)}
        await clock.advance(60)
        synced, age, failures = cache_metrics("left out")
        assert (synced, age) == (1, 0)
        assert failures
        server.refusals = {}
        await clock.advance(60)
        await server.namespaces[None].send(bookmark(1, end=True))
        await clock.advance(7)
        assert cache_metrics("left out") == (1, 7, failures)


async def test_a_kind_that_is_needed_is_waited_for(server: Server, clock: VirtualClock) -> None:
    server.refusals = {None: absent()}
    async with running(Informer(server, PODS, clock=clock, name="needed")):
        await clock.advance(600)
        assert cache_metrics("needed") == (0, 0, 0)
        server.refusals = {None: Forbidden(status=403)}
        await clock.advance(600)
        assert cache_metrics("needed")[1] == 1200, "it is old only if the server serves it"
        server.refusals = {}
        await clock.advance(60)
        await server.namespaces[None].send(bookmark(1, end=True))
        assert cache_metrics("needed")[:2] == (1, 0)


async def test_a_cache_that_nobody_has_begun_to_fill_is_not_waited_for(server: Server, clock: VirtualClock) -> None:
    """As those of jobs of a kind that the server does not serve."""
    informer = Informer(server, PODS, clock=clock, name="dormant")
    await clock.advance(600)
    assert cache_metrics("dormant") == (1, 0, 0)
    async with running(informer):
        await clock.advance(9)
        assert cache_metrics("dormant") == (0, 9, 0)
