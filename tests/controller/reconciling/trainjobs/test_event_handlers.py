"""Which events concern which TrainJobs, and what the caches keep."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.caches import JOBSET, Cluster, Recorder, running
from support.informers import event
from support.objects import runtime_object, trainjob_object
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.cache.store import object_key
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.reconciling.event_handlers import strip_foreign_objects
from trainmaster.controller.reconciling.trainjobs.event_handlers import (
    TRAINJOB_OWNER,
    owner_keys,
    runtime_index_value,
    runtime_index_values,
)
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject


def child(*owners: tuple[str, str, str, bool], kind: str = "JobSet", name: str = "child") -> JsonObject:
    """An object with owners: API version, kind, name, and whether it is the controller."""
    references = [
        {"apiVersion": api_version, "kind": owner_kind, "name": owner, "uid": f"uid-{owner}", "controller": controller}
        for api_version, owner_kind, owner, controller in owners
    ]
    metadata = {"name": name, "namespace": "team", "uid": "c", "ownerReferences": references}
    return {"kind": kind, "metadata": metadata}


def trainjob_owner(name: str, *, version: str = "v1alpha1", controller: bool = True) -> tuple[str, str, str, bool]:
    return f"trainer.kubeflow.org/{version}", "TrainJob", name, controller


class Wiring:
    """Caches of a cluster in which there was nothing, with the queue of TrainJobs behind them."""

    def __init__(self) -> None:
        clock = VirtualClock()
        self.cluster, self.queue, self._version = Cluster(clock), Recorder(clock), 1
        self.caches = Caches(self.cluster, [JOBSET], clock=clock)
        self.caches.add_trainjob_handlers(self.queue)

    async def enqueued_by(self, resource: Resource, obj: JsonObject, kind: str = "MODIFIED") -> list[str]:
        """Have something happen to an object, and return the keys that this enqueues."""
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        await self.cluster.send(resource, event(kind, {**obj, "metadata": metadata}))
        return [key for key, _ in self.queue.news()]


@pytest.fixture
async def wiring() -> AsyncIterator[Wiring]:
    wiring = Wiring()
    async with running(wiring.caches):
        await wiring.cluster.fill()
        yield wiring


@pytest.mark.guarantee("E-1")
@pytest.mark.parametrize("field", ["labels", "annotations", "finalizers", "status"])
async def test_every_change_of_a_trainjob_wakes_it_up(wiring: Wiring, field: str) -> None:
    """Also those that leave the generation as it is: no predicate hides them."""
    job = trainjob_object()
    assert await wiring.enqueued_by(TRAINJOBS, job, "ADDED") == ["team/demo"]
    where = job if field == "status" else job["metadata"]
    where[field] = ["a"] if field == "finalizers" else {"a": "b"}
    assert await wiring.enqueued_by(TRAINJOBS, job) == ["team/demo"]
    assert await wiring.enqueued_by(TRAINJOBS, job, "DELETED") == ["team/demo"]


@pytest.mark.guarantee("E-2", "E-4")
async def test_the_status_of_a_child_and_a_change_of_its_owner_wake_its_owners_up(wiring: Wiring) -> None:
    obj = child(trainjob_owner("old"))
    assert await wiring.enqueued_by(JOBSETS, obj, "ADDED") == ["team/old"]
    obj["status"] = {"restarts": 1}
    assert await wiring.enqueued_by(JOBSETS, obj) == ["team/old"]
    assert sorted(await wiring.enqueued_by(JOBSETS, child(trainjob_owner("new")))) == ["team/new", "team/old"]
    assert await wiring.enqueued_by(JOBSETS, child()) == ["team/new"]


@pytest.mark.guarantee("E-3")
@pytest.mark.parametrize(
    ("owner", "keys"),
    [
        (trainjob_owner("demo"), ["team/demo"]),
        (trainjob_owner("demo", version="v2"), ["team/demo"]),
        (trainjob_owner("demo", controller=False), []),
        (("acme.io/v1alpha1", "TrainJob", "demo", True), []),
        (("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", "demo", True), []),
    ],
)
def test_an_owner_is_found_by_group_and_kind_in_the_childs_namespace(
    owner: tuple[str, str, str, bool], keys: list[str]
) -> None:
    assert owner_keys(child(owner)) == keys


@pytest.mark.guarantee("E-6")
async def test_a_runtime_wakes_up_the_jobs_that_wait_for_it(wiring: Wiring) -> None:
    waiting, built, other = trainjob_object("waiting"), trainjob_object("built"), trainjob_object("other")
    other["spec"]["runtimeRef"]["name"] = "another"
    for job in (waiting, built, other):
        await wiring.enqueued_by(TRAINJOBS, job, "ADDED")
    snapshot = child(trainjob_owner("built"), kind="ConfigMap", name="built-runtime-snapshot")
    await wiring.enqueued_by(CONFIGMAPS, snapshot, "ADDED")
    assert await wiring.enqueued_by(TRAINING_RUNTIMES, runtime_object(), "ADDED") == ["team/waiting"]


@pytest.mark.guarantee("S-17")
def test_of_a_strangers_object_only_its_identity_is_kept() -> None:
    """ConfigMaps: there may be many, and kubectl keeps all of their data in an annotation as well."""
    metadata = {
        "name": "big",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "1",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000},
        "managedFields": [{"manager": "kubectl"}],
    }
    trimmed = strip_foreign_objects(TRAINJOB_OWNER)({"kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
    identity = {"name": "big", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    assert trimmed == {"kind": "ConfigMap", "metadata": identity}


@pytest.mark.guarantee("E-6")
def test_a_runtime_finds_the_jobs_that_name_it() -> None:
    runtime = runtime_object()
    assert list(runtime_index_values(trainjob_object())) == [runtime_index_value(runtime["kind"], object_key(runtime))]


@pytest.mark.guarantee("E-6")
def test_a_job_that_names_no_kind_means_a_cluster_training_runtime() -> None:
    """As when its spec is read; otherwise such a job would wait for its runtime for ever."""
    job = trainjob_object()
    del job["spec"]["runtimeRef"]["kind"]
    assert list(runtime_index_values(job)) == [runtime_index_value("ClusterTrainingRuntime", "rt")]


def test_what_has_no_namespace_concerns_no_trainjob() -> None:
    """Plugins may watch kinds that belong to no namespace."""
    assert owner_keys({"kind": "ClusterRole", "metadata": {"name": "big"}}) == []
