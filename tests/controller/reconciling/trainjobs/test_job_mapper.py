"""The map functions of plugins: what one that fails takes away from nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from structlog.testing import capture_logs
from support.commands import eventually
from support.series import value_of

from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.plugins.observer import PluginCallObserver
from trainmaster.controller.plugins.threads import PluginThreads
from trainmaster.controller.reconciling.trainjobs.event_handlers import JobMapper, ThreadedMapper
from trainmaster.runtime.framework import Framework
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject
from trainmaster.runtime.listers import Watch

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
