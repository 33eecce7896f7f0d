"""Which TrainJobs a change enqueues, and what is remembered of workloads that go."""

import threading
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from support.caches import GANG, JOBSET, PODGROUPS, Cluster, Recorder, Watching, jobs_of, running
from support.commands import eventually
from support.informers import bookmark, event
from support.objects import trainjob_object
from support.virtualtime import VirtualClock
from support.world import jobset_of

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.kube.rest.watch import WatchEvent
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.plugins.guard import PluginGuard
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.expectations import EventFilter, Expectations
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch


def gang(version: int, job: str, namespace: str = "team") -> JsonObject:
    """A PodGroup that concerns a TrainJob by its label."""
    metadata = {"name": "g", "namespace": namespace, "resourceVersion": str(version), "labels": {"job": job}}
    return {"kind": "PodGroup", "metadata": metadata}


@pytest.mark.guarantee("S-13", "S-14")
async def test_reminders_and_what_was_there_at_first_come_after_all_else(cluster: Cluster, clock: VirtualClock) -> None:
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


@pytest.mark.guarantee("E-4")
async def test_a_change_of_owner_wakes_up_both(cluster: Cluster, clock: VirtualClock) -> None:
    """Whatever another plugin of the kind does to what it is shown."""

    def wreck(obj: JsonObject) -> list[tuple[str, str]]:
        obj["metadata"].clear()
        return []

    watches = Framework([Watching("a", Watch(*GANG, jobs=wreck)), Watching("b", Watch(*GANG, jobs=jobs_of))]).watches()
    caches, queue = Caches(cluster, watches, clock=clock), Recorder(clock)
    caches.add_trainjob_handlers(queue)

    async with running(caches):
        podgroups = cluster.kinds[PODGROUPS]
        await podgroups.send(bookmark(1, end=True), event("ADDED", gang(2, "a", "ns")))
        assert queue.news() == [("ns/a", 0)]
        await podgroups.send(event("MODIFIED", gang(3, "b", "ns")))
        assert queue.news() == [("ns/a", 0), ("ns/b", 0)]
        await podgroups.send(event("DELETED", gang(4, "b", "ns")))
        assert queue.news() == [("ns/b", 0)]


async def test_a_mapper_that_hangs_delays_the_events_of_its_kind_alone(cluster: Cluster, clock: VirtualClock) -> None:
    """Where it is of somebody else. What happens to one object meanwhile is mapped as one change."""
    go_on, mapped = threading.Event(), list[str]()

    def wait(obj: JsonObject) -> Iterable[tuple[str, str]]:
        mapped.append(obj["metadata"]["resourceVersion"])
        go_on.wait()
        return jobs_of(obj)

    caches, queue = Caches(cluster, [Watch(*GANG, jobs=wait)], clock=clock), Recorder(clock)
    threads = PluginThreads("planner", skips=lambda _plugin: False)
    caches.add_trainjob_handlers(queue, plugin_threads=threads)

    job = trainjob_object("other")
    async with running(caches):
        podgroups = cluster.kinds[PODGROUPS]
        await podgroups.send(bookmark(1, end=True), event("ADDED", gang(2, "a")))
        await eventually(lambda: mapped == ["2"])
        await podgroups.send(event("MODIFIED", gang(3, "b")), event("MODIFIED", gang(4, "c")))
        await cluster.send(TRAINJOBS, event("ADDED", job), bookmark(3, end=True))
        assert queue.news() == [("team/other", -100)]
        go_on.set()
        await eventually(lambda: len(queue.added) == 3)
        assert queue.news() == [("team/a", 0), ("team/a", 0), ("team/c", 0)]
        assert mapped == ["2", "4"]
    threads.close()


@pytest.mark.guarantee("S-8")
@pytest.mark.parametrize("kind", ["MODIFIED", "DELETED"])
async def test_what_a_mapper_sees_in_a_thread_nobody_changes(cluster: Cluster, clock: VirtualClock, kind: str) -> None:
    """The first reader of an object may change the tree of its last event."""
    go_on = threading.Event()

    def wait(obj: JsonObject) -> Iterable[tuple[str, str]]:
        go_on.wait()
        return jobs_of(obj)

    caches, queue = Caches(cluster, [Watch(*GANG, jobs=wait)], clock=clock), Recorder(clock)
    threads = PluginThreads("planner", skips=lambda _plugin: False)
    caches.add_trainjob_handlers(queue, plugin_threads=threads)
    (informer,) = (each for each in caches.informers() if each.resource.kind == "PodGroup")

    def spoil(change: Delta) -> None:
        """Do what another handler, or the first reader, may."""
        tree = change.old if change.is_deletion else change.new
        if tree is not None and tree["metadata"]["resourceVersion"] == "3":
            tree["metadata"].clear()

    informer.add_event_handler(spoil)

    async with running(caches):
        podgroups = cluster.kinds[PODGROUPS]
        await podgroups.send(bookmark(1, end=True), event("ADDED", gang(2, "a")), event(kind, gang(3, "b")))
        go_on.set()
        await eventually(lambda: "team/b" in [key for key, _ in queue.added])
    threads.close()


@pytest.mark.guarantee("E-4")
async def test_a_mapper_that_is_given_up_loses_no_update(cluster: Cluster, clock: VirtualClock) -> None:
    for_ever, now = threading.Event(), [0.0]

    class Plugin:
        name = "acme"

        def watch_extension(self) -> list[Watch]:
            return [Watch(*GANG, jobs=self.jobs)]

        def jobs(self, obj: JsonObject) -> Iterable[tuple[str, str]]:
            if obj["metadata"]["labels"]["job"] == "b":
                now[0] += 10
                for_ever.wait()
            return jobs_of(obj)

    guard = PluginGuard(time_limit=5, failures=100, period=60, now=lambda: now[0])
    threads = PluginThreads("planner", skips=lambda _plugin: False)
    caches = Caches(cluster, Framework([Plugin()], guard=guard).watches(), clock=clock)
    queue = Recorder(clock)
    caches.add_trainjob_handlers(queue, plugin_threads=threads)
    async with running(caches):
        podgroups = cluster.kinds[PODGROUPS]
        await podgroups.send(bookmark(1, end=True))
        for version, job, keys in ((2, "a", ["team/a"]), (3, "b", ["team/a"]), (4, "c", ["team/a", "team/c"])):
            await podgroups.send(event("ADDED" if version == 2 else "MODIFIED", gang(version, job)))
            await eventually(partial(_are_added, queue, keys))
    for_ever.set()
    threads.close()


def _are_added(queue: Recorder, keys: list[str]) -> bool:
    """Tell whether these are there; if so, they are news no longer."""
    return [key for key, _ in queue.added] == keys and bool(queue.news())


@pytest.mark.defect("U16")
async def test_a_change_is_one_reconcile_however_many_plugins_watch(cluster: Cluster, clock: VirtualClock) -> None:
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


@pytest.mark.defect("B27")
async def test_the_last_state_of_a_workload_is_kept_for_its_job(cluster: Cluster, clock: VirtualClock) -> None:
    """As who reads workloads whole tells: to a plugin that selects some by a label one seems deleted that lost it."""
    labelled = Watch(JOBSETS.api_version, JOBSETS.kind, JOBSETS.plural, metadata_only=True, label_selector="a=1")
    caches = Caches(cluster, [JOBSET, labelled], clock=clock)
    job, jobset = trainjob_object(), jobset_of("uid-1")
    ended = {"conditions": [{"type": "Completed", "status": "True"}]}

    def at(version: int, obj: JsonObject, **fields: Any) -> JsonObject:
        return {**obj, **fields, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}

    async with running(caches):
        await cluster.send(TRAINJOBS, event("ADDED", job), bookmark(8, end=True))
        assert [each["metadata_only"] for each in cluster.kinds[JOBSETS.name].opened] == [False, True]
        informers = [each for each in caches.informers() if each.resource == JOBSETS]
        for informer in informers:
            informer.store.put(at(9, jobset))
        assert not caches.deleted_workloads.last_states("team/demo")
        first, second = informers
        for informer, change in ((first, at(11, jobset, status=ended)), (second, at(11, jobset))):
            informer.handle_event(WatchEvent("DELETED", change, 1), "11", namespace=None)
        (last,) = caches.deleted_workloads.last_states("team/demo")
        assert last.state["status"] == ended
        await cluster.send(TRAINJOBS, event("DELETED", at(12, job)))
        assert not caches.deleted_workloads.last_states("team/demo")


async def test_only_events_of_what_a_trainjob_consists_of_can_be_echoes(cluster: Cluster, clock: VirtualClock) -> None:
    """Whatever else asks for a TrainJob, a reminder and the function of a plugin among it, has it reconciled."""
    caches, queue = Caches(cluster, [JOBSET, Watch(*GANG, jobs=jobs_of)], clock=clock), Recorder(clock)
    expectations = Expectations(clock=clock)
    event_filter = EventFilter(queue, expectations)
    caches.add_trainjob_handlers(queue, event_filter)
    job = trainjob_object()
    jobset = jobset_of("uid-1")
    jobset["metadata"]["resourceVersion"] = "4"
    metadata = {"name": "g", "namespace": "team", "uid": "g", "resourceVersion": "5", "labels": {"job": "demo"}}
    gang: JsonObject = {"kind": "PodGroup", "metadata": metadata}
    shown = Store()
    shown.update_resource_version("9")

    def settle() -> None:
        event_filter.begin("team/demo")
        for written in (job, jobset, gang):
            expectations.expect_write("team/demo", {"apiVersion": "v1", **written}, shown, foreseen=True)
        event_filter.expect_echoes("team/demo")
        event_filter.end("team/demo")

    async with running(caches):
        await cluster.send(TRAINJOBS, bookmark(1, end=True))
        await cluster.send(JOBSETS, bookmark(1, end=True))
        await cluster.kinds[PODGROUPS].send(bookmark(1, end=True))
        job["metadata"]["resourceVersion"] = "3"
        settle()
        await cluster.send(TRAINJOBS, event("ADDED", job))
        await cluster.send(JOBSETS, event("ADDED", jobset))
        assert queue.news() == []
        await cluster.kinds[PODGROUPS].send(event("ADDED", gang))
        assert queue.news() == [("team/demo", 0)]
        settle()
        await clock.advance(11 * 3600)
        assert queue.news() == [("team/demo", -100)]
        jobset["metadata"]["resourceVersion"] = "6"
        settle()
        await cluster.send(JOBSETS, event("DELETED", jobset))
        assert queue.news() == [("team/demo", 100)]
        settle()
        caches.enqueue_all()
        assert queue.news() == [("team/demo", -100)]


@pytest.mark.guarantee("M-4")
async def test_a_replica_that_stands_by_keeps_nothing_of_gone_trainjobs(cluster: Cluster, clock: VirtualClock) -> None:
    """What they owned is collected after them, and its deletion names them again."""
    caches = Caches(cluster, [JOBSET], clock=clock)
    queue = WorkQueue(clock=clock, exists=caches.trainjobs.store.__contains__)
    event_filter = EventFilter(queue, Expectations(clock=clock))
    caches.add_trainjob_handlers(queue, event_filter)
    job, jobset = trainjob_object(), jobset_of("uid-1")

    def at(version: int, obj: JsonObject) -> JsonObject:
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}

    async with running(caches):
        await cluster.send(TRAINJOBS, event("ADDED", at(2, job)), bookmark(3, end=True))
        await cluster.send(JOBSETS, event("ADDED", at(4, jobset)), bookmark(5, end=True))
        assert (len(queue), len(event_filter)) == (1, 0)
        await cluster.send(TRAINJOBS, event("DELETED", at(6, job)))
        await cluster.send(JOBSETS, event("DELETED", at(7, jobset)))
        assert (len(queue), len(event_filter)) == (0, 0)
