"""Kinds that the cluster does not serve, whom they hold up, and what is told of them."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs
from support.caches import GANG, JOBSET, PODGROUPS, Cluster, Recorder, keep_waiting, running
from support.informers import bookmark, event
from support.objects import trainjob_object
from support.virtualtime import VirtualClock

from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.listers import Watch


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
async def test_without_jobset_it_is_not_ready_tells_whose_trainjobs_need_it_and_goes_on_when_it_comes(
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
        assert not await keep_waiting(caches)
        queue.news()
        cluster.absent = set()
        await clock.advance(10.1)
        await cluster.send(JOBSETS, bookmark(3, end=True))
        assert caches.not_synced() == []
        assert queue.news() == [("team/demo", -100)]


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
