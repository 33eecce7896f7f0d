"""One informer for each kind, the indexes that plugins declare, and kinds that the cluster does not serve."""

from collections.abc import Iterable
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.caches import GANG, JOBSET, PODGROUPS, QUEUE, Cluster, Recorder, Watching, keep_waiting, running
from support.commands import eventually
from support.informers import bookmark, event
from support.objects import trainjob_object
from support.series import value_of
from support.virtualtime import VirtualClock, settle

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, SECRETS, Resource
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.reconciling.expectations import Expectations
from trainmaster.controller.resources import JOBSETS, RUNTIMES, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, NoSuchIndex, Watch


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


async def test_an_index_function_is_called_with_what_its_plugin_declared_and_nothing_less(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """Also of what it builds. Another informer has foreign objects by name and owners alone, which nobody expects."""
    metadata = {"name": "a", "namespace": "ns", "resourceVersion": "2"}
    foreign = {"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "type": "Opaque"}
    seen: list[JsonObject] = []

    def kind_of(obj: JsonObject) -> list[str]:
        seen.append(obj)
        return [obj["type"]]

    built = Watch("v1", "Secret", "secrets", writes=True, indexes={"type": kind_of})
    caches = Caches(cluster, [built], clock=clock)
    async with running(caches):
        await cluster.kinds["secrets"].send(event("ADDED", foreign), bookmark(3, end=True))
        found = list(caches.listers().by_index("v1", "Secret", "type", "Opaque"))
    assert [obj["metadata"]["name"] for obj in found] == ["a"]

    seen.clear()
    keys = Watch("v1", "Secret", "secrets", writes=True, metadata_only=True)
    selected = Watch("v1", "Secret", "secrets", label_selector="acme=1", indexes={"type": kind_of})
    caches = Caches(cluster, [keys, selected], clock=clock)
    metadata_of_all, whole = (each for each in caches.informers() if each.resource.plural == "secrets")
    metadata_of_all.store.put({key: value for key, value in foreign.items() if key != "type"})
    whole.store.put(foreign)
    assert [obj["type"] for obj in seen] == ["Opaque"]
    assert [obj["type"] for obj in caches.listers().by_index("v1", "Secret", "type", "Opaque")] == ["Opaque"]


@pytest.mark.guarantee("S-18", "S-19", "S-21")
@pytest.mark.parametrize(
    ("watch", "opened"),
    [
        (Watch("v1", "Secret", "secrets", label_selector="acme=1"), [(False, "acme=1")]),
        (Watch("v1", "Secret", "secrets"), [(False, None)]),
        (Watch("v1", "ConfigMap", "configmaps", metadata_only=True), [(False, None), (True, None)]),
    ],
)
async def test_a_plugins_watch_does_not_widen_what_others_declared(
    cluster: Cluster, clock: VirtualClock, watch: Watch, opened: list[tuple[bool, str | None]]
) -> None:
    """Metadata stays metadata and a selector stays: only a plugin that declares all Secrets whole has them read so."""
    watches = Framework([*load_plugins(), Watching("acme", watch)]).watches()
    async with running(Caches(cluster, watches, clock=clock)):
        name = Resource("", "v1", watch.kind, watch.plural, watch.namespaced).name
        asked = [(each["metadata_only"], each["label_selector"]) for each in cluster.kinds[name].opened]
    assert sorted(asked, key=str) == sorted(opened, key=str)


async def test_two_informers_of_one_kind_have_metrics_of_their_own(cluster: Cluster, clock: VirtualClock) -> None:
    watches = [Watch(*GANG, label_selector=selector) for selector in ("a", "b")]
    async with running(Caches(cluster, watches, clock=clock)):
        pass
    for name in (PODGROUPS, f"{PODGROUPS}[b]"):
        assert value_of("trainmaster_informer_objects", {"resource": name}) == 0


def test_a_watch_that_contradicts_the_controller_itself_is_refused(cluster: Cluster, clock: VirtualClock) -> None:
    watch = Watch("v1", "ConfigMap", "configmaps", namespaced=False, declared_by="acme")
    with pytest.raises(PluginInvalid, match=r"about ConfigMap .*the controller itself says .*, acme says .*cluster"):
        Caches(cluster, [watch], clock=clock)


@pytest.mark.guarantee("S-21")
async def test_a_kind_of_the_controller_itself_is_shared_with_plugins(cluster: Cluster, clock: VirtualClock) -> None:
    own = [Watch(each.api_version, each.kind, each.plural) for each in (TRAINJOBS, CONFIGMAPS, TRAINING_RUNTIMES)]
    caches = Caches(cluster, own, clock=clock)
    assert caches.stores()[TRAINJOBS.api_version, TRAINJOBS.kind][1] is caches.trainjobs.store
    async with running(caches):
        assert {name: len(script.opened) for name, script in cluster.kinds.items()} == dict.fromkeys(cluster.kinds, 1)


@pytest.mark.guarantee("S-19")
@pytest.mark.defect("S1")
@pytest.mark.parametrize(("fields", "whole"), [({}, True), ({"writes": True}, False), ({"label_selector": "a"}, False)])
async def test_only_a_plugin_that_reads_all_config_maps_gets_them_whole(
    cluster: Cluster, clock: VirtualClock, fields: dict[str, Any], whole: bool
) -> None:
    """Otherwise of those that are no TrainJob's, and match no selector, hardly anything is kept."""
    caches = Caches(cluster, [Watch("v1", "ConfigMap", "configmaps", **fields)], clock=clock)
    foreign = {"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "2"}, "data": {}}
    async with running(caches):
        await cluster.send(CONFIGMAPS, event("ADDED", foreign), bookmark(3, end=True))
    stored = caches.stores()["v1", "ConfigMap"][1].get("ns/a")
    assert stored is not None
    assert ("data" in stored) == whole


@pytest.mark.guarantee("E-8")
async def test_an_api_server_that_is_away_is_told_once_by_all_caches() -> None:
    """Thirteen collections have one reason; each of them would bury what else is in the log."""
    with capture_logs() as logged:
        async with KubeClient(RestConfig(server=f"http://127.0.0.1:{free_port()}"), user_agent="tests") as client:
            caches = Caches(client, Framework(load_plugins()).watches(), clock=VirtualClock())
            async with running(caches):
                await eventually(lambda: all(informer.failure for informer in caches.informers()))
    assert len(caches.informers()) > 10
    (told,) = [entry for entry in logged if entry["log_level"] == "warning"]
    assert told["event"] == "collection cannot be read, trying again"
    assert "refused the connection" in told["reason"]


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
        assert await keep_waiting(caches)


@pytest.mark.parametrize(
    ("reading", "served"),
    [
        ({"namespaces": ("acme",)}, ()),
        ({"namespaces": ("acme",)}, ("team", "acme")),
        ({"namespaces": ("acme",)}, ("team",)),
        ({"label_selector": "a=1"}, ()),
    ],
)
async def test_what_one_plugin_writes_unread_waits_for_no_cache_of_what_another_reads_of_the_kind(
    cluster: Cluster, clock: VirtualClock, reading: dict[str, Any], served: tuple[str, ...]
) -> None:
    """As for Secrets: that of an MPI TrainJob, and those of a plugin's own namespace."""
    secret = ("v1", "Secret", "secrets")
    watches = [Watch(*secret, writes=True, creates_only=True, reads=False), Watch(*secret, **reading)]
    caches, expectations = Caches(cluster, watches, namespaces=served, clock=clock), Expectations(clock=clock)
    async with running(caches):
        labelled = {"name": "own", "namespace": "acme", "resourceVersion": "2", "labels": {"a": "1"}}
        await cluster.send(SECRETS, bookmark(1, end=True), event("ADDED", {"kind": "Secret", "metadata": labelled}))
        _, store = caches.stores()["v1", "Secret"]
        written = {"name": "ssh", "namespace": "team", "uid": "u", "resourceVersion": "7"}
        expectations.expect_write("team/demo", {"apiVersion": "v1", "kind": "Secret", "metadata": written}, store)
        assert expectations.satisfied("team/demo")
        assert ("team/ssh" in store, store.uid("team/ssh")) == (True, "u")
        assert ("acme/own" in store) is (served != ("team",))
        await clock.advance(600)
        assert expectations.unobserved() == ["team/demo"]
        assert "team/ssh" not in store, "it may have been deleted meanwhile"


@pytest.mark.guarantee("E-7")
async def test_a_needed_kind_that_is_not_served_is_named_with_what_to_do(cluster: Cluster, clock: VirtualClock) -> None:
    cluster.absent = {TRAINJOBS.name}
    caches = Caches(cluster, [JOBSET], clock=clock)
    async with running(caches):
        await cluster.fill()
        (not_synced,) = caches.not_synced()
        assert not_synced.startswith(f"{TRAINJOBS.name} (the cluster does not serve it")
        assert "install the CustomResourceDefinition trainjobs.trainer.kubeflow.org" in not_synced
        assert await keep_waiting(caches)


@pytest.mark.guarantee("E-7")
@pytest.mark.defect("U17")
async def test_an_optional_kind_that_comes_goes_and_comes_again_holds_nobody_up_and_is_told_each_time_it_can_be_read(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """It is looked for every ten seconds. Its absence is nobody's matter but of those who use it."""
    cluster.absent = {PODGROUPS}
    caches, queue = Caches(cluster, [JOBSET, Watch(*GANG, optional=True)], clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)
    _, store = caches.stores()[GANG[:2]]
    podgroups = cluster.kinds[PODGROUPS]
    gang = {"kind": "PodGroup", "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "2"}}
    with capture_logs() as logs:
        async with running(caches):
            await cluster.send(TRAINJOBS, event("ADDED", trainjob_object()))
            await cluster.fill()
            assert not await keep_waiting(caches)
            await clock.advance(3600)
            told = [each for each in logs if "podgroups" in str(each) and each["log_level"] != "debug"]
            assert told == []
            queue.news()
            for _ in range(2):
                cluster.absent = set()
                await clock.advance(10.1)
                await podgroups.send(event("ADDED", gang), bookmark(3, end=True))
                assert queue.news() == [("team/demo", -100)]
                assert store.keys() == ["ns/a"]
                cluster.absent = {PODGROUPS}
                await podgroups.send(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))
                await clock.advance(30)
                assert queue.news() == []
            assert caches.not_synced() == []


@pytest.mark.guarantee("E-7")
async def test_a_kind_that_one_plugin_needs_is_told_of_with_that_plugin_and_holds_only_its_trainjobs_up(
    cluster: Cluster, clock: VirtualClock
) -> None:
    """The manager is ready: who is to install the definition may need its webhooks."""
    cluster.absent = {PODGROUPS}
    watches = [Watch(*GANG, optional=True, declared_by="easy"), Watch(*GANG, declared_by="strict")]
    caches, queue = Caches(cluster, watches, clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)
    with capture_logs() as logs:
        async with running(caches):
            await cluster.send(TRAINJOBS, event("ADDED", trainjob_object()))
            await cluster.fill()
            assert caches.not_synced() == []
            assert not await keep_waiting(caches)
            assert not caches.listers().is_served(*GANG[:2])
            (told,) = caches.waited_for()
            assert told.startswith(
                "podgroups.scheduling.x-k8s.io for the TrainJobs of strict (the cluster does not serve"
            )
            assert "install the CustomResourceDefinition podgroups.scheduling.x-k8s.io" in told
            queue.news()
            cluster.absent = set()
            await clock.advance(10.1)
            await cluster.kinds[PODGROUPS].send(bookmark(3, end=True))
            assert caches.listers().is_served(*GANG[:2])
            assert caches.waited_for() == []
            assert queue.news() == [("team/demo", -100)]
    lines = [each for each in logs if "plugins need" in each["event"]]
    assert [(each["log_level"], each.get("plugins")) for each in lines] == [("warning", ["strict"]), ("info", None)]


@pytest.mark.guarantee("E-7")
async def test_a_kind_that_only_a_plugin_reads_and_the_manager_may_not_holds_only_its_trainjobs_up(
    cluster: Cluster, clock: VirtualClock
) -> None:
    cluster.denied = {PODGROUPS}
    caches = Caches(cluster, [JOBSET, Watch(*GANG, declared_by="strict")], clock=clock)
    with capture_logs() as logs:
        async with running(caches):
            await cluster.fill()
            assert caches.not_synced() == []
            assert not await keep_waiting(caches)
            assert not caches.listers().is_served(*GANG[:2])
            (told,) = caches.waited_for()
            assert "for the TrainJobs of strict (no permission to " in told
            cluster.denied = set()
            await clock.advance(60)
            await cluster.kinds[PODGROUPS].send(bookmark(3, end=True))
            assert caches.listers().is_served(*GANG[:2])
            assert caches.waited_for() == []
    (line,) = [each for each in logs if each["event"].startswith("a kind that plugins need cannot be read")]
    assert 'grant the verbs list and watch on the resource "podgroups"' in line["reason"]


@pytest.mark.guarantee("E-7")
async def test_without_the_right_to_read_jobsets_it_does_not_begin(cluster: Cluster, clock: VirtualClock) -> None:
    cluster.denied = {JOBSETS.name}
    caches = Caches(cluster, [JOBSET], clock=clock)
    async with running(caches):
        await cluster.fill()
        assert [each.split(" ")[0] for each in caches.not_synced()] == [JOBSETS.name]
        assert await keep_waiting(caches)
