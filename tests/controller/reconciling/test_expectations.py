"""Own writes that the caches have to show first, and which events do not have a key reconciled."""

from typing import Any

import pytest
from structlog.testing import capture_logs
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.expectations import (
    EXPECTATIONS_TIMEOUT,
    UNOBSERVED_AFTER,
    EventFilter,
    Expectations,
    UnreadStore,
)
from trainmaster.runtime.jsontree import JsonObject

KEY = "team/demo"


def store_at(version: int, *objects: JsonObject) -> Store:
    store = Store()
    store.replace([store.entry(obj) for obj in objects], resource_version=str(version))
    return store


def child(kind: str = "JobSet", *, version: str = "7", uid: str = "c1", **metadata: Any) -> JsonObject:
    identity = {"namespace": "team", "name": "demo", "uid": uid, "resourceVersion": version}
    return {"apiVersion": "v1", "kind": kind, "metadata": identity | metadata}


@pytest.mark.guarantee("C-4")
def test_writes_of_one_kind_and_name_in_two_groups_are_both_expected() -> None:
    """Two projects have a PodGroup, and a TrainJob may have one of each."""
    expectations, behind = Expectations(clock=VirtualClock()), store_at(5)
    expectations.expect_write(KEY, {**child("PodGroup"), "apiVersion": "scheduling.x-k8s.io/v1alpha1"}, behind)
    expectations.expect_write(KEY, {**child("PodGroup"), "apiVersion": "scheduling.volcano.sh/v1beta1"}, store_at(9))
    assert not expectations.satisfied(KEY)
    behind.update_resource_version("7")
    assert expectations.satisfied(KEY)


@pytest.mark.guarantee("C-6")
def test_a_later_version_satisfies_them_as_well() -> None:
    """The version of the write itself may never be seen: another write came right after it."""
    expectations, store = Expectations(clock=VirtualClock()), store_at(5)
    expectations.expect_write(KEY, child(version="7"), store)
    store.update_resource_version("9")
    assert expectations.satisfied(KEY)


@pytest.mark.guarantee("C-4")
def test_of_two_writes_of_an_object_the_later_one_counts() -> None:
    expectations, store = Expectations(clock=VirtualClock()), store_at(5)
    expectations.expect_write(KEY, child(version="7"), store)
    expectations.expect_write(KEY, child(version="8"), store)
    store.update_resource_version("7")
    assert not expectations.satisfied(KEY)
    store.update_resource_version("8")
    assert expectations.satisfied(KEY)


@pytest.mark.guarantee("C-5")
def test_a_version_that_is_no_number_holds_nothing_up() -> None:
    expectations = Expectations(clock=VirtualClock())
    expectations.expect_write(KEY, child(version="opaque"), store_at(0))
    assert expectations.satisfied(KEY)


@pytest.mark.guarantee("C-3")
def test_a_delete_is_waited_for_until_the_cache_shows_it() -> None:
    expectations, old = Expectations(clock=VirtualClock()), child()
    store = store_at(7, old)
    for after in (None, child(uid="c2", version="9"), child(version="9", deletionTimestamp="2026-01-01T00:00:00Z")):
        store.put(old)
        expectations.expect_deletion(KEY, old, store)
        store.update_resource_version("100")
        assert not expectations.satisfied(KEY)
        store.delete("team/demo") if after is None else store.put(after)
        assert expectations.satisfied(KEY)


def test_a_delete_of_what_nobody_reads_holds_nothing_up() -> None:
    """No cache would ever show that it is gone."""
    expectations, old, store = Expectations(clock=VirtualClock()), child(), UnreadStore()
    expectations.expect_write(KEY, old, store)
    expectations.expect_deletion(KEY, old, store)
    assert expectations.satisfied(KEY)
    assert "team/demo" not in store


@pytest.mark.guarantee("C-3")
def test_no_wait_is_for_ever() -> None:
    """A cache that never shows a write is a fault, but of the cache."""
    clock = VirtualClock()
    expectations, store = Expectations(clock=clock), store_at(5)
    expectations.expect_write(KEY, child(), store)
    clock.step(EXPECTATIONS_TIMEOUT)
    assert not expectations.satisfied(KEY)
    clock.step(1)
    with capture_logs() as logs:
        assert expectations.satisfied(KEY)
    assert [(entry["log_level"], entry["object"]) for entry in logs] == [("warning", "v1 JobSet team/demo")]


@pytest.mark.guarantee("C-3")
def test_a_key_whose_write_vanished_before_any_cache_saw_it_is_named() -> None:
    """The cache was filled anew meanwhile, so it has no event about what was never in it."""
    clock = VirtualClock()
    expectations, store = Expectations(clock=clock), store_at(5)
    expectations.expect_write(KEY, child(), store)
    expectations.expect_write("team/other", child(name="other"), store)
    assert expectations.unobserved() == []
    store.replace([], resource_version="9")
    assert expectations.satisfied("team/other")
    clock.step(UNOBSERVED_AFTER)
    assert expectations.unobserved() == [KEY]
    assert expectations.satisfied(KEY)
    assert expectations.unobserved() == []


OWN, FOREIGN = ("c1", "7"), ("c1", "8")


class Bench:
    """A queue, and what stands before it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.queue = WorkQueue(clock=self.clock)
        self.expectations = Expectations(clock=self.clock)
        self.event_filter = EventFilter(self.queue, self.expectations)

    def reconcile(
        self,
        *writes: JsonObject,
        meanwhile: tuple[tuple[str, str], ...] = (),
        settles: bool = True,
        foreseen: bool = True,
    ) -> None:
        self.event_filter.begin(KEY)
        for each in writes:
            self.expectations.expect_write(KEY, each, Store(), foreseen=foreseen)
        for version in meanwhile:
            self.event_filter.add(KEY, version)
        assert self.queue.take() is None  # it would not be handed out while it is reconciled, either
        if settles:
            self.event_filter.expect_echoes(KEY)
        self.event_filter.end(KEY)

    def asked(self) -> bool:
        """Whether the key was put into the queue."""
        key = self.queue.take()
        if key is not None:
            self.queue.done(key)
        return key is not None


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_priority_of_what_is_held_back_is_kept(bench: Bench) -> None:
    bench.event_filter.begin(KEY)
    bench.event_filter.add(KEY, ("a", "1"), priority=-100)
    bench.event_filter.add(KEY, ("b", "2"), priority=5)
    bench.event_filter.end(KEY)
    assert bench.queue.state(limit=1)["readyKeys"][0]["priority"] == 5
