"""When caches of named namespaces are filled, and what is left out."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.informers import Script, bookmark, event
from support.objects import trainjob_object
from support.series import value_of
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.rest.errors import Forbidden, NotConnected, NotFound, ServerError, TooManyRequests
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS
from trainmaster.metrics.cache import OBJECTS
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

JOBSET = Watch(JOBSETS.api_version, JOBSETS.kind, JOBSETS.plural, writes=True, required=True)
LIMITS = Watch("v1", "LimitRange", "limitranges", optional=True)
Where = tuple[str, str | None]


class Cluster:
    """A server of several namespaces, which may refuse a resource in any of them."""

    def __init__(self, clock: VirtualClock) -> None:
        self.collections: dict[Where, Script] = defaultdict(lambda: Script(clock))
        self.refusals: dict[Where, Exception] = {}

    async def list_bytes(self, resource: Resource, namespace: str | None = None, **_: Any) -> bytes:
        raise self.refusals[resource.name, namespace]

    @asynccontextmanager
    async def watch(self, resource: Resource, *, namespace: str | None = None, **asked: Any) -> AsyncIterator[Any]:
        if (resource.name, namespace) in self.refusals:
            raise self.refusals[resource.name, namespace]
        async with self.collections[resource.name, namespace].watch(resource, **asked) as stream:
            yield stream

    async def fill(self, *but: Where) -> None:
        """Show that there is nothing (more) in what is watched."""
        await settle()
        for where, script in list(self.collections.items()):
            if where not in but:
                await script.send(bookmark(1, end=True))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster(clock: VirtualClock) -> Cluster:
    return Cluster(clock)


@asynccontextmanager
async def running(caches: Caches) -> AsyncIterator[asyncio.Task[None]]:
    """Run caches; yields the wait for them."""
    task, waiting = asyncio.create_task(caches.run()), asyncio.create_task(caches.wait_for_sync())
    try:
        await settle()
        yield waiting
    finally:
        for each in (task, waiting):
            each.cancel()
        await asyncio.wait({task, waiting})


def caches_of(cluster: Cluster, clock: VirtualClock, *namespaces: str) -> Caches:
    return Caches(cluster, [JOBSET, LIMITS], namespaces=namespaces, clock=clock)


def job_in(namespace: str, version: int) -> JsonObject:
    job = trainjob_object()
    job["metadata"] |= {"namespace": namespace, "resourceVersion": str(version)}
    return job


async def test_no_trainjob_is_seen_before_everything_else_of_its_namespace(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """It would be judged by less than there is: its JobSet would seem to be gone."""
    caches, queue = caches_of(cluster, clock, "a", "b"), WorkQueue(clock=clock)
    caches.add_trainjob_handlers(queue)
    async with running(caches) as waiting:
        await cluster.fill((JOBSETS.name, "b"))
        await cluster.fill((JOBSETS.name, "b"))
        assert {name for name, namespace in cluster.collections if namespace == "a"} >= {TRAINJOBS.name}
        assert (TRAINJOBS.name, "b") not in cluster.collections
        assert not waiting.done()
        await cluster.collections[JOBSETS.name, "b"].send(bookmark(2, end=True))
        await cluster.collections[TRAINJOBS.name, "b"].send(event("ADDED", job_in("b", 2)), bookmark(3, end=True))
        assert waiting.done()
        assert caches.not_synced() == []
        assert len(queue) == 1


async def test_a_namespace_in_which_something_may_not_be_read_is_left_out_and_told_of_once(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """None of its TrainJobs is seen, whatever else may be read there."""
    cluster.refusals = {(name, "b"): Forbidden(status=403) for name in (JOBSETS.name, CONFIGMAPS.name)}
    caches = caches_of(cluster, clock, "a", "b")
    with capture_logs() as logs:
        async with running(caches) as waiting:
            await cluster.fill()
            await cluster.fill()
            assert waiting.done()
            assert caches.not_synced() == []
            assert (TRAINJOBS.name, "b") not in cluster.collections
            await clock.advance(3600)
            told = [each for each in logs if each["event"].startswith("a namespace is not served")]
            assert [each["namespace"] for each in told] == ["b"]
            cluster.refusals.clear()
            await clock.advance(60)
            await cluster.fill(*((name, "a") for name, _ in list(cluster.collections)))
            await cluster.collections[TRAINJOBS.name, "b"].send(bookmark(9, end=True))
    assert [each["namespace"] for each in logs if each["event"] == "the namespace is served now"] == ["b"]


async def test_when_no_namespace_may_be_read_it_waits_and_says_which_right_is_missing(
    cluster: Cluster, clock: VirtualClock
) -> None:
    cluster.refusals = {(JOBSETS.name, namespace): Forbidden(status=403) for namespace in ("a", "b")}
    caches = caches_of(cluster, clock, "a", "b")
    async with running(caches) as waiting:
        await cluster.fill()
        assert not waiting.done()
        missing = ", ".join(caches.not_synced())
        assert '"jobsets" of the API group "jobset.x-k8s.io" by a Role in namespace "a"' in missing
        assert "so it is in 1 more namespaces" in missing


REFUSED = Forbidden(status=403)


@pytest.mark.parametrize(
    ("refusals", "namespaces", "waits"),
    [
        ({(JOBSETS.name, "b"): ServerError(status=500)}, ("a", "b"), True),
        ({("limitranges", "a"): REFUSED, (CLUSTER_TRAINING_RUNTIMES.name, None): REFUSED}, ("a",), False),
        ({(CLUSTER_TRAINING_RUNTIMES.name, None): REFUSED}, (), True),
    ],
    ids=["only a refusal says that waiting is in vain", "what is optional", "where all namespaces are served"],
)
async def test_what_is_needed_and_not_refused_for_good_is_waited_for(
    cluster: Cluster, clock: VirtualClock, refusals: dict[Where, Exception], namespaces: tuple[str, ...], waits: bool
) -> None:
    cluster.refusals = refusals
    caches = caches_of(cluster, clock, *namespaces)
    async with running(caches) as waiting:
        await cluster.fill()
        await cluster.fill()
        assert waiting.done() != waits
        assert bool(caches.not_synced()) == waits


@pytest.mark.guarantee("R-27")
async def test_whoever_finds_that_the_server_is_back_tells_all_others(cluster: Cluster, clock: VirtualClock) -> None:
    """They wait up to a minute each; keys that failed meanwhile are tried again as well."""
    caches, queue = caches_of(cluster, clock), WorkQueue(clock=clock)
    caches.add_trainjob_handlers(queue)
    away = NotConnected("connection refused")
    names = [JOBSETS.name, TRAINJOBS.name, CONFIGMAPS.name, "limitranges", *(each.name for each in RUNTIMES.values())]
    cluster.refusals = {(name, None): away for name in names}
    for _ in range(14):
        queue.add_rate_limited("team/demo")
    async with running(caches):
        await clock.advance(600)
        assert cluster.collections == {}
        cluster.refusals.clear()
        elapsed = 0.0
        while not cluster.collections:
            await clock.advance(0.1)
            elapsed += 0.1
        assert len(cluster.collections) == 1, "a stream that has brought nothing yet says nothing"
        await cluster.fill()
        assert len(cluster.collections) == len(names)
        assert elapsed < 60
        assert queue.take() == "team/demo"


@pytest.mark.guarantee("E-7", "R-27")
async def test_who_is_refused_or_told_to_wait_does_so_when_the_server_is_back(
    cluster: Cluster, clock: VirtualClock
) -> None:
    cluster.refusals = {
        ("limitranges", None): TooManyRequests(status=429, retry_after=50.0),
        (JOBSETS.name, None): NotFound(status=404, reason="NotFound"),
        (CONFIGMAPS.name, None): NotConnected("connection refused"),
    }
    caches = caches_of(cluster, clock)
    async with running(caches):
        await cluster.fill()
        await clock.advance(9)
        cluster.refusals.clear()
        caches.outages.server_returned()
        await settle()
        assert (CONFIGMAPS.name, None) in cluster.collections
        assert (JOBSETS.name, None) not in cluster.collections
        await clock.advance(1.1)
        assert (JOBSETS.name, None) in cluster.collections
        await clock.advance(38)
        assert ("limitranges", None) not in cluster.collections
        await clock.advance(3)
        assert ("limitranges", None) in cluster.collections


async def test_a_hundred_namespaces_have_one_series_of_each_metric(cluster: Cluster, clock: VirtualClock) -> None:
    names = [f"team-{number}" for number in range(100)]
    caches = caches_of(cluster, clock, *names)
    async with running(caches) as waiting:
        await cluster.fill()
        for name in names:
            job = event("ADDED", job_in(name, 2))
            await cluster.collections[TRAINJOBS.name, name].send(job, bookmark(3, end=True))
        assert waiting.done()
        assert value_of("trainmaster_informer_objects", {"resource": TRAINJOBS.name}) == 100
    resources = {sample.labels["resource"] for family in OBJECTS.collect() for sample in family.samples}
    assert not [resource for resource in resources if "team-" in resource]


async def test_a_namespace_that_is_deleted_and_made_again_is_served_again(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """Its Role goes with it: what was watched goes on until the watch ends, and is asked for until it is allowed."""
    caches, queue = caches_of(cluster, clock, "a", "b"), WorkQueue(clock=clock)
    caches.add_trainjob_handlers(queue)
    async with running(caches):
        await cluster.fill()
        trainjobs = cluster.collections[TRAINJOBS.name, "b"]
        await trainjobs.send(event("ADDED", job_in("b", 2)), bookmark(3, end=True))
        await cluster.collections[TRAINJOBS.name, "a"].send(bookmark(3, end=True))
        await trainjobs.send(event("DELETED", job_in("b", 4)))
        cluster.refusals = {where: Forbidden(status=403) for where in cluster.collections if where[1] == "b"}
        for where in cluster.refusals:
            await cluster.collections[where].close()
        await clock.advance(600)
        assert caches.trainjobs.store.keys() == []
        assert caches.not_synced() == []
        cluster.refusals.clear()
        await clock.advance(60)
        await trainjobs.send(event("ADDED", job_in("b", 12)), bookmark(13, end=True))
        assert caches.trainjobs.store.keys() == ["b/demo"]
