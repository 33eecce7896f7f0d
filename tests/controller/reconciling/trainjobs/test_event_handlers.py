"""Which events concern which TrainJobs, and what the caches keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import pytest
from support.objects import runtime_object, trainjob_object
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.informer import Informer
from trainmaster.controller.kube.cache.listwatch import ListWatcher
from trainmaster.controller.kube.cache.store import object_key
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.kube.workqueue.queue import LOW_PRIORITY, WorkQueue
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.reconciling.trainjobs.event_handlers import (
    owner_keys,
    runtime_index_value,
    runtime_index_values,
    strip_foreign_objects,
)
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject


def child(*owners: tuple[str, str, str, bool], kind: str = "JobSet", version: str = "1") -> JsonObject:
    """An object with owners: API version, kind, name, and whether it is the controller."""
    references = [
        {"apiVersion": api_version, "kind": owner_kind, "name": name, "uid": f"uid-{name}", "controller": controller}
        for api_version, owner_kind, name, controller in owners
    ]
    metadata = {
        "name": "child",
        "namespace": "team",
        "uid": "c",
        "resourceVersion": version,
        "ownerReferences": references,
    }
    return {"kind": kind, "metadata": metadata}


def trainjob_owner(name: str, *, version: str = "v1alpha1", controller: bool = True) -> tuple[str, str, str, bool]:
    return f"trainer.kubeflow.org/{version}", "TrainJob", name, controller


class Wiring:
    """The caches with the queue of TrainJobs behind them; a test delivers what the informers would."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.queue = WorkQueue(clock=self.clock)
        self.hear: defaultdict[Resource, list[Callable[[Delta], object]]] = defaultdict(list)
        plugins = Framework(load_plugins())
        self.caches = Caches(cast("ListWatcher", None), plugins.watches(), clock=self.clock)
        self.caches.add_trainjob_handlers(self.queue)
        self.stores = dict(self.caches.stores().values())
        self.stores[TRAINJOBS] = self.caches.trainjobs.store

    def deliver(self, resource: Resource, obj: JsonObject | None, *, key: str = "team/child", **marks: bool) -> None:
        store = self.stores[resource]
        change = store.delete(key) if obj is None else store.put(obj)
        for name, value in marks.items():
            setattr(change, name, value)
        for hear in self.hear[resource]:
            hear(change)

    def enqueued(self) -> list[str]:
        keys = []
        while (key := self.queue.take()) is not None:
            keys.append(key)
            self.queue.done(key)
        return keys


@pytest.fixture
def wiring(monkeypatch: pytest.MonkeyPatch) -> Wiring:
    heard: defaultdict[Resource, list[Callable[[Delta], object]]] = defaultdict(list)

    def listen(self: Informer, hear: Callable[[Delta], object], **options: Any) -> None:
        heard[self.resource].append(hear)

    monkeypatch.setattr(Informer, "add_event_handler", listen)
    wiring = Wiring()
    wiring.hear = heard
    return wiring


@pytest.mark.guarantee("E-1")
@pytest.mark.parametrize("field", ["labels", "annotations", "finalizers", "status"])
def test_every_change_of_a_trainjob_wakes_it_up(wiring: Wiring, field: str) -> None:
    """Also those that leave the generation as it is: no predicate hides them."""
    job = trainjob_object()
    wiring.deliver(TRAINJOBS, job)
    assert wiring.enqueued() == ["team/demo"]
    where = job if field == "status" else job["metadata"]
    where[field] = ["a"] if field == "finalizers" else {"a": "b"}
    job["metadata"]["resourceVersion"] = "8"
    wiring.deliver(TRAINJOBS, job)
    assert wiring.enqueued() == ["team/demo"]
    wiring.deliver(TRAINJOBS, None, key="team/demo")
    assert wiring.enqueued() == ["team/demo"]


@pytest.mark.guarantee("E-2")
def test_the_status_of_a_child_wakes_its_owner_up(wiring: Wiring) -> None:
    obj = child(trainjob_owner("demo"))
    wiring.deliver(JOBSETS, obj)
    assert wiring.enqueued() == ["team/demo"]
    obj["status"] = {"restarts": 1}
    wiring.deliver(JOBSETS, obj)
    assert wiring.enqueued() == ["team/demo"]


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


@pytest.mark.guarantee("E-4")
def test_both_the_old_and_the_new_owner_are_woken_up_once(wiring: Wiring) -> None:
    wiring.deliver(JOBSETS, child(trainjob_owner("old")))
    wiring.enqueued()
    wiring.deliver(JOBSETS, child(trainjob_owner("new"), version="2"))
    assert sorted(wiring.enqueued()) == ["team/new", "team/old"]
    wiring.deliver(JOBSETS, child(version="3"))
    assert wiring.enqueued() == ["team/new"]
    wiring.deliver(JOBSETS, child(trainjob_owner("new"), version="4"))
    wiring.deliver(JOBSETS, child(trainjob_owner("new"), version="5"))
    assert wiring.enqueued() == ["team/new"]


@pytest.mark.guarantee("E-6")
def test_a_runtime_wakes_up_the_jobs_that_wait_for_it_by_an_index(
    wiring: Wiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, built, other = trainjob_object("waiting"), trainjob_object("built"), trainjob_object("other")
    other["spec"]["runtimeRef"]["name"] = "another"
    for job in (waiting, built, other):
        wiring.deliver(TRAINJOBS, job)
    snapshot = child(trainjob_owner("built"), kind="ConfigMap")
    snapshot["metadata"]["name"] = "built-runtime-snapshot"
    wiring.deliver(CONFIGMAPS, snapshot)
    wiring.enqueued()

    def read(*arguments: object) -> None:
        raise AssertionError("a TrainJob was read to find out whom a runtime concerns")

    for method in ("get", "list", "each"):
        monkeypatch.setattr(wiring.caches.trainjobs.store, method, read)
    wiring.deliver(TRAINING_RUNTIMES, runtime_object())
    assert wiring.enqueued() == ["team/waiting"]


@pytest.mark.guarantee("W-22")
@pytest.mark.parametrize(("mark", "low"), [("initial", True), ("resync", True), (None, False)])
def test_what_is_not_new_comes_last(wiring: Wiring, mark: str | None, low: bool) -> None:
    wiring.deliver(TRAINJOBS, trainjob_object(), initial=mark == "initial", resync=mark == "resync")
    wiring.queue.add("team/middle", priority=LOW_PRIORITY // 2)
    assert wiring.enqueued() == (["team/middle", "team/demo"] if low else ["team/demo", "team/middle"])


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
    trimmed = strip_foreign_objects({"kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
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
