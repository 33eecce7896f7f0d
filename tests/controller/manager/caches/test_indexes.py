"""Indexes that plugins declare, and who finds what by them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from support.caches import QUEUE, Cluster, Recorder, running
from support.informers import bookmark, event
from support.objects import trainjob_object
from support.virtualtime import VirtualClock

from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.framework import Framework
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
