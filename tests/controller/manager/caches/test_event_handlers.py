"""Which TrainJobs a change enqueues, and what is remembered of workloads that go."""

from __future__ import annotations

from typing import Any

import pytest
from support.caches import GANG, JOBSET, Cluster, Recorder, Watching, jobs_of, running
from support.informers import bookmark, event
from support.objects import trainjob_object
from support.virtualtime import VirtualClock
from support.world import jobset_of

from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.kube.rest.watch import WatchEvent
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.reconciling.echoes import Echoes
from trainmaster.controller.reconciling.expectations import Expectations
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch


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


@pytest.mark.guarantee("S-13", "S-14")
async def test_reminders_and_what_was_there_at_the_start_come_after_everything_else(
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


@pytest.mark.guarantee("E-4")
async def test_a_change_of_owner_wakes_up_both(cluster: Cluster, clock: VirtualClock) -> None:
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


@pytest.mark.defect("U16")
async def test_however_many_plugins_watch_a_kind_a_change_is_one_reconcile(
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


@pytest.mark.defect("B27")
async def test_the_last_state_of_a_workload_is_kept_for_its_job(cluster: Cluster, clock: VirtualClock) -> None:
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


@pytest.mark.defect("B27")
async def test_only_who_reads_workloads_whole_tells_how_they_ended(cluster: Cluster, clock: VirtualClock) -> None:
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


async def test_only_events_of_what_a_trainjob_consists_of_can_be_echoes(cluster: Cluster, clock: VirtualClock) -> None:
    """Whatever else asks for a TrainJob, a reminder and the function of a plugin among it, has it reconciled."""
    caches, queue = Caches(cluster, [JOBSET, Watch(*GANG, jobs=jobs_of)], clock=clock), Recorder(clock)
    expectations = Expectations(clock=clock)
    echoes = Echoes(queue, expectations)
    caches.add_trainjob_handlers(queue, echoes)
    job = trainjob_object()
    jobset = jobset_of("uid-1")
    jobset["metadata"]["resourceVersion"] = "4"
    metadata = {"name": "g", "namespace": "team", "uid": "g", "resourceVersion": "5", "labels": {"job": "demo"}}
    gang: JsonObject = {"kind": "PodGroup", "metadata": metadata}

    def settle() -> None:
        echoes.begin("team/demo")
        for written in (job, jobset, gang):
            expectations.expect_write(
                "team/demo", {"apiVersion": "v1", **written}, caches.trainjobs.store, foreseen=True
            )
        echoes.settle("team/demo")
        echoes.end("team/demo")

    async with running(caches):
        await cluster.send(TRAINJOBS, bookmark(1, end=True))
        await cluster.send(JOBSETS, bookmark(1, end=True))
        await cluster.kinds["podgroups.scheduling.x-k8s.io"].send(bookmark(1, end=True))
        job["metadata"]["resourceVersion"] = "3"
        settle()
        await cluster.send(TRAINJOBS, event("ADDED", job))
        await cluster.send(JOBSETS, event("ADDED", jobset))
        assert queue.news() == []
        await cluster.kinds["podgroups.scheduling.x-k8s.io"].send(event("ADDED", gang))
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
