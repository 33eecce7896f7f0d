"""Kinds that the cluster does not serve or that come and go, and when caches of named namespaces are filled."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.informers import Script, bookmark, event
from support.jobworld import KINDS
from support.objects import trainjob_object
from support.processes import DEFINITIONS
from support.series import value_of
from support.stack import QUIET, Stack, api_server
from support.training import apply_runtime, conditions, found, runtime, trainjob, until
from support.virtualtime import VirtualClock, settle
from support.web import probed

from trainmaster.controller.job_kinds import job_kinds
from trainmaster.controller.kube.rest.errors import Forbidden, NotConnected, NotFound, ServerError, TooManyRequests
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS, Resource
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS, job_resource
from trainmaster.devcluster.crds.install import (
    GANG_DEFINITIONS,
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    TRAINING_OPERATOR_DEFINITIONS,
    install_definitions,
)
from trainmaster.metrics.cache import OBJECTS
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch

POD_GROUPS = "podgroups.scheduling.x-k8s.io"


@pytest.fixture
async def stack(tmp_path: Path, impatient: None) -> AsyncIterator[Stack]:
    """A cluster that serves the kinds of Trainer and no others."""
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("definitions are those of the cluster")
        await install_definitions(stack.cluster.api, TRAINER_DEFINITIONS)
        yield stack


QUEUE = Resource("acme.io", "v1", "Queue", "queues", namespaced=True)
ANYTHING = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
SERVED = {
    "group": "acme.io",
    "scope": "Namespaced",
    "names": {"kind": "Queue", "plural": "queues"},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": ANYTHING}],
}
QUEUE_DEFINITION = {"kind": "CustomResourceDefinition", "metadata": {"name": "queues.acme.io"}, "spec": SERVED}


class Queued:
    """Labels the JobSets of torch by the only queue that there is."""

    name = "acme-queues"
    policies = ("torch",)

    def watch_extension(self) -> list[Watch]:
        return [Watch(QUEUE.api_version, QUEUE.kind, QUEUE.plural)]

    def validate(self, info: Info, job: TrainJob, listers: Listers) -> Iterator[FieldError]:
        if not list(listers.list(QUEUE.api_version, QUEUE.kind)):
            yield FieldError("spec", "there is no queue")

    def enforce_ml_policy(self, info: Info) -> None:
        (queue,) = info.listers.list(QUEUE.api_version, QUEUE.kind)
        info.labels["queue"] = queue["metadata"]["name"]


async def has_jobset(stack: Stack, name: str) -> None:
    await until(lambda: found(stack.client, JOBSETS, name))


async def blocked(stack: Stack, name: str, reason: str = "") -> str:
    """Wait until a TrainJob is blocked, for a reason; returns the message."""

    async def message() -> str | None:
        told = (await conditions(stack.client, name)).get("Blocked")
        return told["message"] if told and reason in ("", told["reason"]) else None

    return str(await until(message))


async def test_where_only_jobs_of_v1_are_defined_the_manager_serves_them(tmp_path: Path, impatient: None) -> None:
    async with api_server(tmp_path, definitions=False) as stack:
        if stack.cluster is None:
            pytest.skip("definitions are those of the cluster")
        async with probed(stack.access, job_kinds=job_kinds(QUIET)) as probes:
            await probes.until("readyz", status=500)
            await install_definitions(stack.cluster.api, TRAINING_OPERATOR_DEFINITIONS)
            await probes.until("readyz", status=200)
            container = {"name": "pytorch", "image": "i"}
            replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
            metadata = {"name": "early", "namespace": "default"}
            job = {"kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": {"Master": replica}}}
            await stack.client.create(job_resource(KINDS["PyTorchJob"]), {"apiVersion": "kubeflow.org/v1", **job})
            await until(lambda: found(stack.client, PODS, "early-master-0"))
            assert "trainjobs.trainer.kubeflow.org for TrainJobs" in (await probes.ask("readyz?verbose"))[1]
            await install_definitions(stack.cluster.api, (*TRAINER_DEFINITIONS, *JOBSET_DEFINITIONS))
            await apply_runtime(stack.client, runtime())
            await stack.client.create(TRAINJOBS, trainjob("late"))
            await has_jobset(stack, "late")


@pytest.mark.defect("U17")
async def test_without_jobset_it_says_so_and_goes_on_when_that_comes(stack: Stack) -> None:
    """The original exits. TrainJobs are told, readiness tells, and nothing has to be restarted."""
    assert stack.cluster is not None
    await apply_runtime(stack.client, runtime())
    await stack.client.create(TRAINJOBS, trainjob("early"))
    with capture_logs() as logs:
        async with probed(stack.access) as probes:
            assert await blocked(stack, "early", "KindNotServed") == (
                "the cluster does not serve JobSet (jobset.x-k8s.io/v1alpha2), which the plugin jobset needs, or the "
                "manager may not read it; tell your administrator to install its definition "
                "(jobsets.jobset.x-k8s.io), to grant the right, or to disable the plugin"
            )
            status, ready = await probes.ask("readyz?verbose")
            assert (status, "jobsets.jobset.x-k8s.io" in ready) == (500, True)
            await install_definitions(stack.cluster.api, JOBSET_DEFINITIONS)
            await has_jobset(stack, "early")
            await probes.until("readyz", status=200)
    lines = [each for each in logs if "podgroup" in str(each).lower() and each["log_level"] != "debug"]
    assert lines == [], "nobody uses these"
    assert len([each for each in logs if each["log_level"] in {"warning", "error"}]) < 10


@pytest.mark.defect("U17")
async def test_a_kind_that_comes_later_or_goes_holds_up_the_trainjobs_of_its_plugin_alone(stack: Stack) -> None:
    """The manager is ready, and says in its readiness and in its log whose TrainJobs wait for what."""
    assert stack.cluster is not None
    await install_definitions(stack.cluster.api, (*JOBSET_DEFINITIONS, *GANG_DEFINITIONS))
    plain, gang = runtime("plain"), runtime("gang")
    plain["spec"]["mlPolicy"] = {"numNodes": 1}
    gang["spec"] |= {"mlPolicy": {"numNodes": 1}, "podGroupPolicy": {"coscheduling": {}}}
    for each in (plain, gang, runtime("torch")):
        await apply_runtime(stack.client, each)
    with capture_logs() as logs:
        async with probed(stack.access, framework=Framework([*load_plugins(), Queued()])) as probes:
            for name, on in (("other", "plain"), ("first", "gang")):
                await stack.client.create(TRAINJOBS, trainjob(name, on=on))
                await has_jobset(stack, name)
            status, ready = await probes.ask("readyz?verbose")
            assert status == 200
            assert "[+]informer-sync ok: waiting for queues.acme.io for the TrainJobs of acme-queues" in ready
            await stack.client.create(TRAINJOBS, trainjob("queued", on="torch"))
            told = await blocked(stack, "queued", "KindNotServed")
            assert "does not serve Queue (acme.io/v1), which the plugin acme-queues needs" in told
            await stack.client.create(DEFINITIONS, QUEUE_DEFINITION)
            await blocked(stack, "queued", "PluginFailed")
            queue = {"apiVersion": "acme.io/v1", "kind": "Queue", "metadata": {"name": "blue", "namespace": "default"}}
            await stack.client.create(QUEUE, queue)
            await has_jobset(stack, "queued")
            jobset = await stack.client.get(JOBSETS, "default", "queued")
            assert jobset["metadata"]["labels"]["queue"] == "blue"
            assert "waiting for queues" not in (await probes.ask("readyz?verbose"))[1]
            (line,) = [each for each in logs if "a kind that plugins need cannot be read" in each["event"]]
            assert (line["log_level"], line["kind"], line["plugins"]) == ("warning", "Queue", ["acme-queues"])

            await stack.client.delete(DEFINITIONS, None, POD_GROUPS)

            async def is_gone() -> bool:
                names = [each["metadata"]["name"] for each in (await stack.client.list(DEFINITIONS))["items"]]
                return POD_GROUPS not in names

            await until(is_gone)
            await stack.client.create(TRAINJOBS, trainjob("second", on="gang"))
            told = await blocked(stack, "second")
            assert f"install the CustomResourceDefinition {POD_GROUPS}" in told
            await install_definitions(stack.cluster.api, GANG_DEFINITIONS)
            await has_jobset(stack, "second")


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


async def test_no_trainjob_is_seen_before_all_else_of_its_namespace(cluster: Cluster, clock: VirtualClock) -> None:
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


async def test_when_no_namespace_may_be_read_it_waits_and_says_why(cluster: Cluster, clock: VirtualClock) -> None:
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
async def test_who_is_refused_or_must_wait_does_when_the_server_is_back(cluster: Cluster, clock: VirtualClock) -> None:
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


async def test_a_namespace_that_is_deleted_and_made_anew_is_served(cluster: Cluster, clock: VirtualClock) -> None:
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
