"""Echoes: which events do not have a key reconciled, and which do."""

from __future__ import annotations

from typing import Any

import pytest
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.reconciling.expectations import UNOBSERVED_AFTER, Echoes, Expectations
from trainmaster.runtime.jsontree import JsonObject

KEY = "team/demo"
OWN, FOREIGN = ("c1", "7"), ("c1", "8")


def written(version: tuple[str, str] = OWN, **metadata: Any) -> JsonObject:
    uid, resource_version = version
    identity = {"namespace": "team", "name": "demo", "uid": uid, "resourceVersion": resource_version}
    return {"apiVersion": "v1", "kind": "JobSet", "metadata": identity | metadata}


class Bench:
    """A queue, and what stands before it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.queue = WorkQueue(clock=self.clock)
        self.expectations = Expectations(clock=self.clock)
        self.echoes = Echoes(self.queue, self.expectations)

    def reconcile(
        self,
        *writes: JsonObject,
        meanwhile: tuple[tuple[str, str], ...] = (),
        settles: bool = True,
        foreseen: bool = True,
    ) -> None:
        self.echoes.begin(KEY)
        for each in writes:
            self.expectations.expect_write(KEY, each, Store(), foreseen=foreseen)
        for version in meanwhile:
            self.echoes.add(KEY, version)
        assert self.queue.take() is None  # it would not be handed out while it is reconciled, either
        if settles:
            self.echoes.settle(KEY)
        self.echoes.end(KEY)

    def asked(self) -> bool:
        """Whether the key was put into the queue."""
        key = self.queue.take()
        if key is not None:
            self.queue.done(key)
        return key is not None


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_own_version_of_another_object_is_no_echo(bench: Bench) -> None:
    bench.reconcile(written())
    bench.echoes.add(KEY, ("c2", "7"))
    assert bench.asked()


def test_a_write_behind_which_something_may_hide_makes_all_of_them_heard(bench: Bench) -> None:
    bench.expectations.expect_write(KEY, written(("c2", "6"), name="other"), Store(), foreseen=False)
    bench.reconcile(written())
    bench.echoes.add(KEY, OWN)
    assert bench.asked()


def test_the_priority_of_what_is_held_back_is_kept(bench: Bench) -> None:
    bench.echoes.begin(KEY)
    bench.echoes.add(KEY, ("a", "1"), priority=-100)
    bench.echoes.add(KEY, ("b", "2"), priority=5)
    bench.echoes.end(KEY)
    assert bench.queue.state(limit=1)["readyKeys"][0]["priority"] == 5


def test_an_echo_is_no_write_of_which_nothing_was_heard(bench: Bench) -> None:
    bench.reconcile(written(), written(("c2", "6"), name="other"))
    bench.echoes.add(KEY, OWN)
    bench.clock.step(UNOBSERVED_AFTER)
    assert bench.expectations.unobserved() == [KEY]
    bench.echoes.add(KEY, ("c2", "6"))
    assert bench.expectations.unobserved() == []
    assert not bench.asked()
