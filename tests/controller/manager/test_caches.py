"""The caches: one informer for each kind, wide enough for everyone, and what are enqueued by which TrainJobs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.informers import Script, bookmark, event
from support.objects import trainjob_object
from support.series import value_of
from support.virtualtime import VirtualClock, settle
from support.world import jobset_of

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.kube.rest.watch import WatchEvent
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.resources import JOBSETS, RUNTIMES, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, NoSuchIndex, Watch

JOBSET = Watch(JOBSETS.api_version, JOBSETS.kind, JOBSETS.plural, writes=True, workload=True, required=True)
GANG = ("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups")


class Cluster:
    """A server of many kinds; those in `absent` it does not serve."""

    def __init__(self, clock: VirtualClock) -> None:
        self.kinds: dict[str, Script] = defaultdict(lambda: Script(clock))
        self.absent: set[str] = set()

    async def list_bytes(self, resource: Resource, *_: Any, **__: Any) -> bytes:
        raise NotFound(status=404, reason="NotFound")

    @asynccontextmanager
    async def watch(self, resource: Resource, **asked: Any) -> AsyncIterator[Any]:
        if resource.name in self.absent:
            raise NotFound(status=404, reason="NotFound")
        async with self.kinds[resource.name].watch(resource, **asked) as stream:
            yield stream

    async def send(self, resource: Resource, *frames: JsonObject) -> None:
        await self.kinds[resource.name].send(*frames)

    async def fill(self) -> None:
        """Show that there is nothing of any kind."""
        await settle()
        for script in self.kinds.values():
            await script.send(bookmark(1, end=True))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster(clock: VirtualClock) -> Cluster:
    return Cluster(clock)


@asynccontextmanager
async def running(caches: Caches) -> AsyncIterator[None]:
    task = asyncio.create_task(caches.run())
    try:
        await settle()
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def jobs_of(obj: JsonObject) -> Iterable[tuple[str, str]]:
    return [(obj["metadata"]["namespace"], obj["metadata"]["labels"]["job"])]


class Recorder(WorkQueue):
    """A queue that remembers what it was given."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.added: list[tuple[str, int]] = []

    def add(self, key: str, *, priority: int = 0) -> None:
        self.added.append((key, priority))
        super().add(key, priority=priority)

    def news(self) -> list[tuple[str, int]]:
        """Return what came since the last call."""
        added, self.added = self.added, []
        return added


async def test_e7_an_optional_kind_that_is_not_served_holds_nobody_up(cluster: Cluster, clock: VirtualClock) -> None:
    """It is looked for every ten seconds, and read when it is there."""
    cluster.absent = {"podgroups.scheduling.x-k8s.io"}
    caches = Caches(cluster, [JOBSET, Watch(*GANG, optional=True)], clock=clock)
    _, store = caches.stores()[GANG[:2]]
    async with running(caches):
        await cluster.fill()
        assert caches.not_synced() == []
        await asyncio.wait_for(caches.wait_for_sync(), 1)
        cluster.absent = set()
        await clock.advance(10.1)
        await cluster.kinds["podgroups.scheduling.x-k8s.io"].send(
            event("ADDED", {"kind": "PodGroup", "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "2"}}),
            bookmark(3, end=True),
        )
        assert store.keys() == ["ns/a"]


async def test_e7_a_needed_kind_that_is_not_served_is_named_with_what_to_do(
    cluster: Cluster, clock: VirtualClock
) -> None:
    cluster.absent = {TRAINJOBS.name}
    caches = Caches(cluster, [JOBSET], clock=clock)
    async with running(caches):
        await cluster.fill()
        (not_synced,) = caches.not_synced()
        assert not_synced.startswith(f"{TRAINJOBS.name} (the cluster does not serve it")
        assert "install the CustomResourceDefinition trainjobs.trainer.kubeflow.org" in not_synced
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caches.wait_for_sync(), 0.01)


async def test_e7_u17_without_jobset_it_is_not_ready_tells_whose_trainjobs_need_it_and_goes_on_when_it_comes(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """Nothing exists of a kind that is not served, so controllers may begin; the original exits."""
    cluster.absent = {JOBSETS.name}
    caches, queue = Caches(cluster, [JOBSET], clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)
    async with running(caches):
        await cluster.send(TRAINJOBS, event("ADDED", trainjob_object()))
        await cluster.fill()
        (not_synced,) = caches.not_synced()
        assert "install the CustomResourceDefinition jobsets.jobset.x-k8s.io" in not_synced
        await asyncio.wait_for(caches.wait_for_sync(), 1)
        queue.news()
        cluster.absent = set()
        await clock.advance(10.1)
        await cluster.send(JOBSETS, bookmark(3, end=True))
        assert caches.not_synced() == []
        assert queue.news() == [("team/demo", -100)]


async def test_e7_u17_an_optional_kind_that_comes_goes_and_comes_again_is_told_once_each_time_it_can_be_read(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """Its absence is nobody's matter but of those who use it."""
    cluster.absent = {"podgroups.scheduling.x-k8s.io"}
    caches, queue = Caches(cluster, [JOBSET, Watch(*GANG, optional=True)], clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)
    podgroups = cluster.kinds["podgroups.scheduling.x-k8s.io"]
    with capture_logs() as logs:
        async with running(caches):
            await cluster.send(TRAINJOBS, event("ADDED", trainjob_object()))
            await cluster.fill()
            await clock.advance(3600)
            told = [each for each in logs if "podgroups" in str(each) and each["log_level"] != "debug"]
            assert told == []
            queue.news()
            for _ in range(2):
                cluster.absent = set()
                await clock.advance(10.1)
                await podgroups.send(bookmark(3, end=True))
                assert queue.news() == [("team/demo", -100)]
                cluster.absent = {"podgroups.scheduling.x-k8s.io"}
                await podgroups.send(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
                await clock.advance(30)
                assert queue.news() == []
            assert caches.not_synced() == []


async def test_e7_a_kind_that_one_plugin_needs_is_told_of_with_that_plugin_and_holds_only_its_trainjobs_up(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """The manager is ready: who is to install the definition may need its webhooks."""
    cluster.absent = {"podgroups.scheduling.x-k8s.io"}
    watches = [Watch(*GANG, optional=True, declared_by="easy"), Watch(*GANG, declared_by="strict")]
    caches, queue = Caches(cluster, watches, clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)
    with capture_logs() as logs:
        async with running(caches):
            await cluster.send(TRAINJOBS, event("ADDED", trainjob_object()))
            await cluster.fill()
            assert caches.not_synced() == []
            await asyncio.wait_for(caches.wait_for_sync(), 1)
            assert not caches.listers().is_served(*GANG[:2])
            (told,) = caches.waited_for()
            assert told.startswith(
                "podgroups.scheduling.x-k8s.io for the TrainJobs of strict (the cluster does not serve"
            )
            assert "install the CustomResourceDefinition podgroups.scheduling.x-k8s.io" in told
            queue.news()
            cluster.absent = set()
            await clock.advance(10.1)
            await cluster.kinds["podgroups.scheduling.x-k8s.io"].send(bookmark(3, end=True))
            assert caches.listers().is_served(*GANG[:2])
            assert caches.waited_for() == []
            assert queue.news() == [("team/demo", -100)]
    lines = [each for each in logs if "plugins need" in each["event"]]
    assert [(each["log_level"], each.get("plugins")) for each in lines] == [("warning", ["strict"]), ("info", None)]


@pytest.mark.parametrize(
    ("watches", "metadata_only", "selector"),
    [
        ([Watch(*GANG, metadata_only=True, label_selector="a")], True, "a"),
        ([Watch(*GANG, metadata_only=True), Watch(*GANG)], False, None),
        ([Watch(*GANG, label_selector="a"), Watch(*GANG, label_selector="a")], False, "a"),
        ([Watch(*GANG, label_selector="a"), Watch(*GANG)], False, None),
    ],
)
async def test_s18_s19_s21_one_informer_serves_all_who_declare_a_kind(
    cluster: Cluster, clock: VirtualClock, watches: list[Watch], metadata_only: bool, selector: str | None
) -> None:
    """It is as wide as the one that asks for most."""
    async with running(Caches(cluster, watches, clock=clock)):
        (asked,) = cluster.kinds["podgroups.scheduling.x-k8s.io"].opened
    assert asked["metadata_only"] is metadata_only
    assert asked["label_selector"] == selector


@pytest.mark.parametrize(
    ("watch", "opened"),
    [
        (Watch("v1", "Secret", "secrets", label_selector="acme=1"), [(True, None), (False, "acme=1")]),
        (Watch("v1", "Secret", "secrets", metadata_only=True), [(True, None)]),
        (Watch("v1", "Secret", "secrets"), [(False, None)]),
        (Watch("v1", "ConfigMap", "configmaps", label_selector="acme=1"), [(False, None), (False, "acme=1")]),
        (Watch("v1", "ConfigMap", "configmaps", metadata_only=True), [(False, None), (True, None)]),
    ],
)
async def test_s18_s19_a_plugins_watch_does_not_widen_what_others_declared(
    cluster: Cluster, clock: VirtualClock, watch: Watch, opened: list[tuple[bool, str | None]]
) -> None:
    """Metadata stays metadata and a selector stays: only a plugin that declares all Secrets whole has them read so."""
    watches = Framework([*load_plugins(), Watching("acme", watch)]).watches()
    async with running(Caches(cluster, watches, clock=clock)):
        name = Resource("", "v1", watch.kind, watch.plural, watch.namespaced).name
        asked = [(each["metadata_only"], each["label_selector"]) for each in cluster.kinds[name].opened]
    assert sorted(asked, key=str) == sorted(opened, key=str)


async def test_s19_config_maps_that_match_no_selector_are_not_kept_whole_for_a_plugin_with_one(
    cluster: Cluster, clock: VirtualClock
) -> None:
    watch = Watch("v1", "ConfigMap", "configmaps", label_selector="acme=1")
    caches = Caches(cluster, [watch], clock=clock)
    foreign = {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "2"}, "data": {}}
    async with running(caches):
        await cluster.send(CONFIGMAPS, event("ADDED", foreign), bookmark(3, end=True))
    stored = caches.stores()["v1", "ConfigMap"][1].get("ns/a")
    assert stored is not None
    assert "data" not in stored


async def test_two_informers_of_one_kind_have_metrics_of_their_own(cluster: Cluster, clock: VirtualClock) -> None:
    watches = [Watch(*GANG, label_selector=selector) for selector in ("a", "b")]
    async with running(Caches(cluster, watches, clock=clock)):
        pass
    for name in ("podgroups.scheduling.x-k8s.io", "podgroups.scheduling.x-k8s.io[b]"):
        assert value_of("trainmaster_informer_objects", {"resource": name}) == 0


def test_a_watch_that_contradicts_the_controller_itself_is_refused(cluster: Cluster, clock: VirtualClock) -> None:
    watch = Watch("v1", "ConfigMap", "configmaps", namespaced=False, declared_by="acme")
    with pytest.raises(PluginInvalid, match=r"about ConfigMap .*the controller itself says .*, acme says .*cluster"):
        Caches(cluster, [watch], clock=clock)


class Watching:
    """A plugin that watches something."""

    def __init__(self, name: str, watch: Watch) -> None:
        self.name = name
        self._watch = watch

    def watch_extension(self) -> list[Watch]:
        return [self._watch]


async def test_a_mapper_that_fails_on_the_old_state_does_not_lose_the_event_of_the_new_one(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """Nor does it keep the other plugins of that kind from hearing of either."""
    watches = Framework(
        [Watching("a", Watch(*GANG, jobs=jobs_of)), Watching("b", Watch(*GANG, jobs=lambda obj: [("ns", "any")]))]
    ).watches()
    caches, queue = Caches(cluster, watches, clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)
    metadata = {"name": "g", "namespace": "ns", "resourceVersion": "2"}
    async with running(caches):
        podgroups = cluster.kinds["podgroups.scheduling.x-k8s.io"]
        await podgroups.send(bookmark(1, end=True), event("ADDED", {"kind": "PodGroup", "metadata": metadata}))
        assert queue.news() == [("ns/any", 0)]
        filled = {**metadata, "resourceVersion": "3", "labels": {"job": "late"}}
        await podgroups.send(event("MODIFIED", {"kind": "PodGroup", "metadata": filled}))
        assert queue.news() == [("ns/late", 0), ("ns/any", 0)]


async def test_a_mapper_cannot_change_what_others_hear_of_an_event(cluster: Cluster, clock: VirtualClock) -> None:
    def wreck(obj: JsonObject) -> list[tuple[str, str]]:
        obj["metadata"].clear()
        return []

    watches = Framework([Watching("a", Watch(*GANG, jobs=wreck)), Watching("b", Watch(*GANG, jobs=jobs_of))]).watches()
    caches, queue = Caches(cluster, watches, clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)
    metadata = {"name": "g", "namespace": "ns", "resourceVersion": "2", "labels": {"job": "a"}}
    async with running(caches):
        podgroups = cluster.kinds["podgroups.scheduling.x-k8s.io"]
        await podgroups.send(bookmark(1, end=True), event("ADDED", {"kind": "PodGroup", "metadata": metadata}))
        assert queue.news() == [("ns/a", 0)]


async def test_s21_a_kind_of_the_controller_itself_is_shared_with_plugins(
    cluster: Cluster, clock: VirtualClock
) -> None:
    own = [Watch(each.api_version, each.kind, each.plural) for each in (TRAINJOBS, CONFIGMAPS, TRAINING_RUNTIMES)]
    caches = Caches(cluster, own, clock=clock)
    assert caches.stores()[TRAINJOBS.api_version, TRAINJOBS.kind][1] is caches.trainjobs.store
    async with running(caches):
        assert {name: len(script.opened) for name, script in cluster.kinds.items()} == dict.fromkeys(cluster.kinds, 1)


@pytest.mark.parametrize("read", [True, False])
async def test_trainer_s1_only_a_plugin_that_reads_config_maps_gets_them_whole(
    cluster: Cluster, clock: VirtualClock, read: bool
) -> None:
    """Otherwise of those that are no TrainJob's hardly anything is kept."""
    watch = Watch("v1", "ConfigMap", "configmaps", writes=not read)
    caches = Caches(cluster, [watch], clock=clock)
    metadata = {"name": "a", "namespace": "ns", "resourceVersion": "2"}
    async with running(caches):
        await cluster.send(
            CONFIGMAPS, event("ADDED", {"kind": "ConfigMap", "metadata": metadata, "data": {}}), bookmark(3, end=True)
        )
    stored = caches.stores()["v1", "ConfigMap"][1].get("ns/a")
    assert stored is not None
    assert ("data" in stored) == read


async def test_s13_s14_reminders_and_what_was_there_at_the_start_come_after_everything_else(
    cluster: Cluster, clock: VirtualClock
) -> None:
    caches, queue = Caches(cluster, [JOBSET], clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)
    job = trainjob_object()
    key = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    async with running(caches):
        job["metadata"]["resourceVersion"] = "2"
        await cluster.send(TRAINJOBS, event("ADDED", job), bookmark(3, end=True))
        assert queue.news() == [(key, -100)]
        job["metadata"]["resourceVersion"] = "4"
        await cluster.send(TRAINJOBS, event("MODIFIED", job))
        assert queue.news() == [(key, 0)]
        await clock.advance(11 * 3600)
        assert queue.news() == [(key, -100)]
        caches.enqueue_all()
        assert queue.news() == [(key, -100)]


async def test_e4_a_change_of_owner_wakes_up_both(cluster: Cluster, clock: VirtualClock) -> None:
    caches, queue = Caches(cluster, [Watch(*GANG, jobs=jobs_of)], clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)

    def gang(version: int, job: str) -> JsonObject:
        metadata = {"name": "g", "namespace": "ns", "resourceVersion": str(version), "labels": {"job": job}}
        return {"kind": "PodGroup", "metadata": metadata}

    async with running(caches):
        podgroups = cluster.kinds["podgroups.scheduling.x-k8s.io"]
        await podgroups.send(bookmark(1, end=True), event("ADDED", gang(2, "a")))
        assert queue.news() == [("ns/a", 0)]
        await podgroups.send(event("MODIFIED", gang(3, "b")))
        assert queue.news() == [("ns/a", 0), ("ns/b", 0)]
        await podgroups.send(event("DELETED", gang(4, "b")))
        assert queue.news() == [("ns/b", 0)]


async def test_u16_however_many_plugins_watch_a_kind_a_change_is_one_reconcile(
    cluster: Cluster, clock: VirtualClock
) -> None:
    watches = [Watch("v1", "ConfigMap", "configmaps", writes=True)] * 3
    caches, queue = Caches(cluster, watches, clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "demo", "controller": True}
    metadata = {"name": "hosts", "namespace": "team", "resourceVersion": "2", "ownerReferences": [owner]}
    async with running(caches):
        await cluster.send(
            CONFIGMAPS, bookmark(1, end=True), event("ADDED", {"kind": "ConfigMap", "metadata": metadata})
        )
    assert {key for key, _ in queue.added} == {"team/demo"}
    assert len(queue) == 1


async def test_b27_the_last_state_of_a_workload_is_kept_for_its_job(cluster: Cluster, clock: VirtualClock) -> None:
    caches = Caches(cluster, [JOBSET], clock=clock)
    job = trainjob_object()
    owner = {"apiVersion": job["apiVersion"], "kind": "TrainJob", "name": "demo", "uid": "uid-1", "controller": True}

    def jobset(version: int, **status: Any) -> JsonObject:
        metadata = {"name": "demo", "namespace": "team", "resourceVersion": str(version), "ownerReferences": [owner]}
        return {"apiVersion": JOBSETS.api_version, "kind": "JobSet", "metadata": metadata, "status": status}

    async with running(caches):
        await cluster.send(TRAINJOBS, event("ADDED", job), bookmark(8, end=True))
        await cluster.send(JOBSETS, event("ADDED", jobset(9)), bookmark(10, end=True))
        assert not caches.deleted_workloads.last_states("team/demo")
        await cluster.send(JOBSETS, event("DELETED", jobset(11, restarts=1)))
        assert [each.state["status"] for each in caches.deleted_workloads.last_states("team/demo")] == [{"restarts": 1}]
        await cluster.send(
            TRAINJOBS, event("DELETED", {**job, "metadata": {**job["metadata"], "resourceVersion": "12"}})
        )
        assert not caches.deleted_workloads.last_states("team/demo")


async def test_e8_an_api_server_that_is_away_is_told_once_by_all_caches() -> None:
    """Thirteen collections have one reason; each of them would bury what else is in the log."""
    clock = VirtualClock()
    with capture_logs() as logged:
        async with KubeClient(RestConfig(server=f"http://127.0.0.1:{free_port()}"), user_agent="tests") as client:
            caches = Caches(client, Framework(load_plugins()).watches(), clock=clock)
            running = asyncio.create_task(caches.run())
            async with asyncio.timeout(30):
                while not all(informer.failure for informer in caches.informers()):
                    await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.wait([running])
    assert len(caches.informers()) > 10
    (told,) = [entry for entry in logged if entry["log_level"] == "warning"]
    assert told["event"] == "collection cannot be read, trying again"
    assert "refused the connection" in told["reason"]


async def test_b27_only_who_reads_workloads_whole_tells_how_they_ended(cluster: Cluster, clock: VirtualClock) -> None:
    """To another plugin, which selects some by a label and reads metadata, one seems deleted that lost the label."""
    labelled = Watch(JOBSETS.api_version, JOBSETS.kind, JOBSETS.plural, metadata_only=True, label_selector="a=1")
    caches = Caches(cluster, [JOBSET, labelled], clock=clock)
    jobset = jobset_of("uid-1")
    ended = {"conditions": [{"type": "Completed", "status": "True"}]}

    def at(version: int, **fields: Any) -> JsonObject:
        return {**jobset, **fields, "metadata": {**jobset["metadata"], "resourceVersion": str(version)}}

    async with running(caches):
        whole = cluster.kinds[JOBSETS.name]
        await cluster.send(TRAINJOBS, event("ADDED", trainjob_object()), bookmark(8, end=True))
        assert [each["metadata_only"] for each in whole.opened] == [False, True]
        informers = [each for each in caches.informers() if each.resource == JOBSETS]
        for informer in informers:
            informer.store.put(at(9))
        first, second = informers
        for informer, change in ((first, at(11, status=ended)), (second, at(11))):
            (partition,) = informer.partitions.values()
            informer.handle_event(partition, WatchEvent("DELETED", change, 1), "11")
        (last,) = caches.deleted_workloads.last_states("team/demo")
        assert last.state["status"] == ended


QUEUE = ("acme.io/v1", "Queue", "queues")


class Queues:
    """A plugin whose TrainJobs name a queue by a label; a change of the queue concerns them all."""

    name = "acme"

    def watch_extension(self) -> list[Watch]:
        return [
            Watch(*QUEUE, namespaced=False, jobs=self.jobs_of),
            Watch(TRAINJOBS.api_version, TRAINJOBS.kind, TRAINJOBS.plural, indexes={"acme-queue": self.queues_of}),
        ]

    def queues_of(self, job: JsonObject) -> Iterable[str]:
        return [job["metadata"]["labels"]["queue"]]

    def jobs_of(self, queue: JsonObject, listers: Listers) -> Iterable[tuple[str, str]]:
        for job in listers.by_index(TRAINJOBS.api_version, TRAINJOBS.kind, "acme-queue", queue["metadata"]["name"]):
            yield job["metadata"]["namespace"], job["metadata"]["name"]


def job_in(queue: str | None, name: str, version: int) -> JsonObject:
    job = trainjob_object(name, uid=name)
    job["metadata"] |= {"resourceVersion": str(version), "labels": {"queue": queue} if queue else {}}
    return job


async def test_a_queue_that_changed_enqueues_all_trainjobs_that_name_it(cluster: Cluster, clock: VirtualClock) -> None:
    """An index that the plugin declared of TrainJobs tells which; one that it cannot index is merely not found."""
    caches, queue = Caches(cluster, Framework([Queues()]).watches(), clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)

    def blue(version: int) -> JsonObject:
        return {"kind": "Queue", "metadata": {"name": "blue", "resourceVersion": str(version)}}

    async with running(caches):
        jobs = [job_in("blue", "a", 2), job_in("red", "b", 3), job_in("blue", "c", 4), job_in(None, "d", 5)]
        await cluster.send(TRAINJOBS, *(event("ADDED", job) for job in jobs))
        await cluster.fill()
        queue.news()
        queues = cluster.kinds["queues.acme.io"]
        await queues.send(event("ADDED", blue(5)))
        assert queue.news() == [("team/a", 0), ("team/c", 0)]
        await cluster.send(TRAINJOBS, event("MODIFIED", job_in("red", "a", 6)))
        queue.news()
        await queues.send(event("MODIFIED", blue(7)))
        assert queue.news() == [("team/a", 0), ("team/c", 0)], "it concerned the first until now"
        await queues.send(event("DELETED", blue(8)))
        assert queue.news() == [("team/c", 0)]


async def test_an_index_that_nobody_declared_is_refused_by_name(cluster: Cluster, clock: VirtualClock) -> None:
    listers = Caches(cluster, Framework([Queues()]).watches(), clock=clock).listers()
    with pytest.raises(NoSuchIndex, match=r"no index 'queue' of TrainJob \(there are: acme-queue\); declare it in"):
        listers.by_index(TRAINJOBS.api_version, TRAINJOBS.kind, "queue", "blue")
    assert list(listers.by_index("acme.io/v1", "Nothing", "queue", "blue")) == [], "of a kind that nobody declared"
    assert not listers.is_served("acme.io/v1", "Nothing")


async def test_who_indexes_what_it_builds_reads_all_of_it(cluster: Cluster, clock: VirtualClock) -> None:
    """It declared that; without an index, foreign objects would be kept by name and owners alone."""
    watch = Watch("v1", "Secret", "secrets", writes=True, indexes={"type": lambda obj: [obj["type"]]})
    caches = Caches(cluster, [watch], clock=clock)
    metadata = {"name": "a", "namespace": "ns", "resourceVersion": "2"}
    async with running(caches):
        foreign = {"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "type": "Opaque"}
        await cluster.kinds["secrets"].send(event("ADDED", foreign), bookmark(3, end=True))
        found = list(caches.listers().by_index("v1", "Secret", "type", "Opaque"))
    assert [obj["metadata"]["name"] for obj in found] == ["a"]


async def test_an_index_function_is_called_with_what_its_plugin_declared_and_nothing_less(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """Another informer of the kind has foreign objects by name and owners alone, which no function expects."""
    seen: list[JsonObject] = []

    def kind_of(obj: JsonObject) -> list[str]:
        seen.append(obj)
        return [obj["type"]]

    keys = Watch("v1", "Secret", "secrets", writes=True, metadata_only=True)
    selected = Watch("v1", "Secret", "secrets", label_selector="acme=1", indexes={"type": kind_of})
    caches = Caches(cluster, [keys, selected], clock=clock)
    metadata_of_all, whole = (each for each in caches.informers() if each.resource.plural == "secrets")
    foreign = {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "2"},
    }
    metadata_of_all.store.put(foreign)
    whole.store.put({**foreign, "type": "Opaque"})
    assert [obj["type"] for obj in seen] == ["Opaque"]
    assert [obj["type"] for obj in caches.listers().by_index("v1", "Secret", "type", "Opaque")] == ["Opaque"]


@pytest.mark.parametrize(
    ("namespaces", "served", "asked"),
    [((), (), [None]), (("b", "a"), (), ["a", "b"]), (("b", "a"), ("a", "c"), ["a"]), (("b",), ("a",), [])],
)
async def test_of_a_kind_only_the_namespaces_are_read_that_somebody_chose(
    cluster: Cluster, clock: VirtualClock, namespaces: tuple[str, ...], served: tuple[str, ...], asked: list[str]
) -> None:
    """And that are served; if there is none, nothing is read, and the kind is empty."""
    caches = Caches(cluster, [Watch(*QUEUE, namespaces=namespaces)], namespaces=served, clock=clock)
    async with running(caches):
        await settle()
        opened = cluster.kinds["queues.acme.io"].opened if "queues.acme.io" in cluster.kinds else []
    assert sorted((each.get("namespace") for each in opened), key=str) == asked
    assert list(caches.listers().list("acme.io/v1", "Queue")) == []
    assert caches.listers().is_served("acme.io/v1", "Queue")


async def test_namespaces_that_only_a_plugin_chose_are_waited_for(cluster: Cluster, clock: VirtualClock) -> None:
    caches = Caches(cluster, [Watch(*QUEUE, namespaces=("a", "b"))], clock=clock)
    async with running(caches):
        for kind in (TRAINJOBS, CONFIGMAPS, *RUNTIMES.values()):
            await cluster.send(kind, bookmark(1, end=True))
        assert caches.not_synced() == ["queues.acme.io"]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caches.wait_for_sync(), 0.01)
