"""What one reflector reads and how it fares, what is told of a change, and what is logged of an outage."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from support.informers import Ear, Script, bookmark, event, pod, running
from support.series import value_of
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer, InformerOptions
from trainmaster.controller.kube.cache.listwatch import Collection, failure_of
from trainmaster.controller.kube.cache.outages import Outages
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.errors import (
    Forbidden,
    KubeError,
    NotConnected,
    NotFound,
    RequestTimeout,
    ServerError,
    Unauthorized,
)
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, NAMESPACES, PODS, Resource
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
    informer = Informer(server, PODS, InformerOptions(namespaces=["a", "b"]), clock=clock)
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
        assert informer.store.total_size == sum(map(informer.store.size, informer.store.keys()))


@pytest.mark.guarantee("C-4")
async def test_versions_are_reached_by_namespace(server: Server, clock: VirtualClock) -> None:
    """A write in a quiet namespace has not been seen because another one is busy, and a busy one waits for no other."""
    informer = Informer(server, PODS, InformerOptions(namespaces=["a", "b"]), clock=clock)
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
    async with running(Informer(server, NAMESPACES, InformerOptions(namespaces=["a", "b"]), clock=clock)):
        await settle()
    assert server.asked == [None]


@pytest.mark.guarantee("E-7")
async def test_an_absent_kind_is_looked_for_once_every_ten_seconds_whatever_the_number_of_namespaces(
    server: Server, clock: VirtualClock
) -> None:
    """When it is there, all namespaces are read at once: none waits for the snapshot of another one."""
    names = [f"team-{number}" for number in range(20)]
    server.refusals = {name: absent() for name in names}
    informer = Informer(server, PODS, InformerOptions(namespaces=names), clock=clock)
    with capture_logs() as logs:
        async with running(informer):
            await clock.advance(0.1)
            assert len(server.asked) == 20
            await clock.advance(600)
            assert len(server.asked) == 80
            server.serve()
            await clock.advance(10)
            assert server.asked[80] == "team-0"
            assert len(set(server.asked[80:])) == 20
            assert not any(each.has_synced for each in informer.reflectors.values())
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == [
        "collection cannot be read, trying again"
    ]


@pytest.mark.guarantee("E-7")
async def test_another_namespace_looks_for_a_kind_if_the_first_is_refused(server: Server, clock: VirtualClock) -> None:
    """A namespace that is deleted takes its Role along, so that nothing can be found out there any more."""
    server.refusals = {"a": absent(), "b": absent()}
    informer = Informer(server, PODS, InformerOptions(namespaces=["a", "b"]), clock=clock)
    async with running(informer):
        await clock.advance(0.1)
        server.refusals["a"] = Forbidden(status=403)
        await clock.advance(10)
        server.asked.clear()
        del server.refusals["b"]
        await clock.advance(10)
        assert "b" in server.asked
        await server.namespaces["b"].send(bookmark(1, end=True))
        assert informer.reflectors["b"].has_synced
        assert "no permission" in (informer.failure or "")


async def test_a_namespace_waits_for_what_it_is_told_to_wait_for(server: Server, clock: VirtualClock) -> None:
    gates = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def open_for(namespace: str) -> None:
        await gates[namespace].wait()

    async with running(
        Informer(server, PODS, InformerOptions(namespaces=["a", "b"], start_after=open_for), clock=clock)
    ):
        await settle()
        assert server.asked == []
        gates["b"].set()
        await settle()
        assert server.asked == ["b"]


async def test_a_cache_is_as_old_as_what_it_heard_of_the_server_last(server: Server, clock: VirtualClock) -> None:
    """In namespaces it is the one that waits longest; a bookmark is enough, also one that says nothing new."""

    def age() -> float | None:
        return value_of("trainmaster_informer_age_seconds", {"resource": "aging"})

    async with running(Informer(server, PODS, InformerOptions(namespaces=["a", "b"], name="aging"), clock=clock)):
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


async def test_of_an_optional_kind_nothing_is_awaited_nor_old_nor_failing(server: Server, clock: VirtualClock) -> None:
    """Alerts look at these three: a cluster that lacks what it needs not have is healthy."""
    server.refusals = {None: absent()}
    async with running(Informer(server, PODS, InformerOptions(optional=True, name="left out"), clock=clock)):
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
    async with running(Informer(server, PODS, InformerOptions(name="needed"), clock=clock)):
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
    informer = Informer(server, PODS, InformerOptions(name="dormant"), clock=clock)
    await clock.advance(600)
    assert cache_metrics("dormant") == (1, 0, 0)
    async with running(informer):
        await clock.advance(9)
        assert cache_metrics("dormant") == (0, 9, 0)


NAMES = st.sampled_from(["a", "status", "resourceVersion", "spec"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["", "1", "2", ',"status":{', '"resourceVersion":"1"', 1, None, {}]),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(NAMES, below, max_size=2),
    max_leaves=5,
)

OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(NAMES, st.sampled_from(["1", "2"]), max_size=2),
        "spec": st.dictionaries(NAMES, VALUES, max_size=2),
        "status": st.dictionaries(NAMES, VALUES, max_size=2),
        "zone": VALUES,
    },
)


def built(parts: JsonObject, version: str) -> JsonObject:
    """As an API server writes it: keys in their order, and what is peculiar to a kind among them."""
    metadata = {"labels": parts.get("labels", {}), "name": "a", "resourceVersion": version, "uid": "u"}
    return {"metadata": metadata, **{name: value for name, value in parts.items() if name != "labels"}}


def changed(before: JsonObject, after: JsonObject) -> Delta:
    store = Store()
    store.put(built(before, "1"))
    return store.put(built(after, "2"))


@given(before=OBJECTS, after=OBJECTS)
@example(before={"spec": {"status": {"a": 1}}}, after={"spec": {"status": {"a": 2}}})
@example(before={"spec": {"a": 1}, "status": {"status": {"a": 1}}}, after={"spec": {"a": 1}, "status": {"a": 2}})
@example(before={"labels": {"resourceVersion": "1"}}, after={"labels": {"resourceVersion": "2"}})
def test_where_statuses_are_told_nothing_else_has_changed(before: JsonObject, after: JsonObject) -> None:
    statuses = changed(before, after).statuses()
    rest_of = [{name: value for name, value in each.items() if name != "status"} for each in (before, after)]
    for each in rest_of:
        each.setdefault("labels", {})
    if statuses is not None:
        assert rest_of[0] == rest_of[1]
        assert statuses == (before.get("status") or {}, after.get("status") or {})


@pytest.mark.parametrize(
    ("before", "after"), [({}, {"a": 1}), ({"a": 1}, {"a": 2}), ({"a": {"status": {}}}, {"a": {"status": "x"}})]
)
def test_statuses_are_told_of_objects_as_api_servers_write_them(before: Any, after: Any) -> None:
    spec = {"template": {"resourceVersion": "1", "status": "of no interest"}}
    delta = changed({"spec": spec, **({"status": before} if before else {})}, {"spec": spec, "status": after})
    assert delta.statuses() == (before, after)


def test_of_what_came_or_went_no_statuses_are_told() -> None:
    store = Store()
    came = store.put(built({"status": {"a": 1}}, "1"))
    went = store.delete("a")
    assert came.statuses() is went.statuses() is None
    assert (came.is_addition, came.is_deletion, went.is_addition, went.is_deletion) == (True, False, False, True)


REFUSED = NotConnected("GET https://a/b: refused")


def tells(outages: Outages, who: str, error: KubeError) -> bool:
    return outages.note(who, failure_of(error, Collection(resource=CONFIGMAPS), "list"))


@pytest.mark.guarantee("E-8")
def test_of_a_reason_that_all_have_the_first_one_tells() -> None:
    outages = Outages()
    assert [tells(outages, name, REFUSED) for name in "abc"] == [True, False, False]
    later = [tells(outages, name, RequestTimeout("GET https://a/b: no answer")) for name in "abc"]
    assert later == [True, False, False], "the server is away all the same, and the same one tells"
    assert outages.note("b", None)
    assert outages.note("a", None)
    assert tells(outages, "b", REFUSED), "another outage is news"


@pytest.mark.guarantee("E-8")
def test_another_reason_is_told_and_ends_the_one_before() -> None:
    outages = Outages()
    assert tells(outages, "a", REFUSED)
    assert tells(outages, "a", Unauthorized(status=401))
    assert tells(outages, "b", REFUSED)
    assert not tells(outages, "b", Unauthorized(status=401))
    assert tells(outages, "b", ServerError(status=500))


@pytest.mark.guarantee("E-8")
def test_what_one_collection_lacks_is_told_by_itself() -> None:
    outages = Outages()
    assert [tells(outages, name, Forbidden(status=403)) for name in "ab"] == [True, True]
    absent = [failure_of(NotFound(status=404), Collection(resource=each), "list") for each in (CONFIGMAPS, PODS)]
    assert [outages.note(name, failure) for name, failure in zip("ab", absent, strict=True)] == [True, True]


def test_a_kind_that_is_absent_in_one_version_is_looked_for_in_another() -> None:
    """A cluster may come to serve the newer one alone."""
    outages = Outages()
    versions = (PODS, replace(PODS, version="v2"))
    absent = [failure_of(NotFound(status=404), Collection(resource=each), "list") for each in versions]
    assert [outages.note(name, failure) for name, failure in zip("ab", absent, strict=True)] == [True, True]
