"""Which events concern which TrainJobs, what the caches keep, and the map functions of plugins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

import pytest
from structlog.testing import capture_logs
from support.caches import JOBSET, Cluster, Recorder, running
from support.commands import eventually
from support.informers import event
from support.objects import runtime_object, trainjob_object
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.cache.store import Store, object_key
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.manager.caches import Caches
from trainmaster.controller.manager.plugin_watches import JobMapper, ThreadedMapper
from trainmaster.controller.plugins.observer import PluginCallObserver
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.event_handlers import strip_foreign_objects
from trainmaster.controller.reconciling.trainjobs.event_handlers import (
    TRAINJOB_OWNER,
    owner_keys,
    runtime_index_value,
    runtime_index_values,
)
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject
from trainmaster.runtime.listers import Watch


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


T = TypeVar("T")


class Queues:
    """Queues of a cluster, each of which says in its spec which TrainJobs it concerns, if it has one."""

    def __init__(self, plugin: str = "queues") -> None:
        class Plugin:
            name = plugin

            def watch_extension(self) -> list[Watch]:
                return [Watch("acme.io/v1", "Queue", "queues", jobs=self.jobs_of)]

            def jobs_of(self, obj: JsonObject) -> Iterable[tuple[str, str]]:
                for name in obj["spec"]["jobs"]:
                    if name == "broken":
                        raise OSError("broken")
                    yield "team", name

        (watch,) = Framework([Plugin()], observer=PluginCallObserver()).watches()
        self.store, self.mapper = Store(), JobMapper(watch)
        self._version = 0

    def object(self, *jobs: str, name: str = "q") -> JsonObject:
        self._version += 1
        metadata = {"name": name, "uid": name, "resourceVersion": str(self._version)}
        spec = {"spec": {"jobs": list(jobs)}} if jobs else {}
        return {"apiVersion": "acme.io/v1", "kind": "Queue", "metadata": metadata, **spec}

    def put(self, *jobs: str, name: str = "q") -> list[str]:
        """Change a queue; returns the keys that this enqueues."""
        return list(self.mapper(self.store.put(self.object(*jobs, name=name))))

    def delete(self, *jobs: str, seen: bool = True) -> list[str]:
        return list(self.mapper(self.store.delete("q", last=self.object(*jobs) if seen else None)))


def test_while_a_mapper_fails_those_that_the_object_concerned_last_are_enqueued() -> None:
    """An update is never lost without a word, however often it fails in between."""
    queues = Queues()
    queues.put("a", "b")
    assert queues.put() == ["team/a", "team/b"]
    assert queues.put("c", "broken") == ["team/a", "team/b"]
    assert queues.put("c") == ["team/a", "team/b", "team/c"]
    assert queues.put() == ["team/c"]
    assert queues.delete(seen=False) == ["team/c"]
    assert queues.put() == []


@pytest.mark.parametrize("seen", [True, False])
def test_a_deletion_whose_last_state_cannot_be_mapped_concerns_those_of_before(seen: bool) -> None:
    queues = Queues()
    queues.put("a")
    assert queues.delete(seen=seen) == ["team/a"]


def test_a_failing_mapper_is_named_counted_and_timed() -> None:
    """In the log once for each object until it can be mapped again, and of a burst only the first."""
    queues = Queues("failing-mapper")
    with capture_logs() as logs:
        for _ in range(3):
            queues.put()
        queues.put("a")
        queues.put()
        for number in range(50):
            queues.put(name=f"q{number}")
    logs = [entry for entry in logs if entry["event"] != "a plugin failed"]  # with its traceback, for its author
    assert [entry["object"] for entry in logs] == ["q", "q", *(f"q{number}" for number in range(9))]
    assert logs[0]["log_level"] == "error"
    assert logs[0]["plugin"] == "failing-mapper"
    assert logs[0]["kind"] == "Queue"
    assert logs[0]["error"] == "plugin failing-mapper failed in Watch.jobs: KeyError: 'spec'"
    labels = {"plugin": "failing-mapper", "phase": "Watch.jobs"}
    assert value_of("trainmaster_plugin_calls_total", {**labels, "result": "error"}) == 54
    assert value_of("trainmaster_plugin_calls_total", {**labels, "result": "success"}) == 1
    assert value_of("trainmaster_plugin_call_seconds_count", labels) == 55


def test_an_object_that_nobody_can_read_is_no_failure_of_the_plugin() -> None:
    queues = Queues()
    queues.put("a")
    unreadable = {**queues.object(), UNREADABLE: "nested too deeply"}
    with capture_logs() as logs:
        assert list(queues.mapper(queues.store.put(unreadable))) == ["team/a"]
    assert not [entry for entry in logs if "plugin" in entry]
    assert queues.put("b") == ["team/a", "team/b"]


async def test_a_change_for_which_there_is_no_thread_is_no_reason_to_lose_those_that_wait() -> None:
    """Those that it concerned last are enqueued."""

    class Exhausted(PluginThreads):
        async def run(self, function: Callable[[], T]) -> T:
            if refused:
                raise refused.pop()
            return function()

    queues, told, refused = Queues(), dict[str, list[str]](), list[Exception]()
    threads = Exhausted("test", skips=lambda _plugin: False)
    mapper = ThreadedMapper(queues.mapper, threads, lambda change, keys: told.update({change.key: list(keys)}))
    queues.put("a")
    refused.append(RuntimeError("can't start new thread"))
    mapper(queues.store.put(queues.object("b")))
    mapper(queues.store.put(queues.object("c", name="r")))
    await eventually(lambda: len(told) == 2)
    assert told == {"q": ["team/a"], "r": ["team/c"]}
