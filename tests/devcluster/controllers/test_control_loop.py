"""The loop itself: what it promises whatever the controller does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs
from support.commands import TIMEOUT
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, ExponentialBackoff

BACKOFF = ExponentialBackoff(base=1, cap=4)


def key(name: str) -> ObjectKey:
    return ObjectKey(CONFIGMAPS, "default", name)


class Recorder:
    """A controller that notes what it is asked to look at."""

    def __init__(
        self, cluster: Stepper, reconcile: Callable[[ObjectKey], Awaitable[float | None]] | None = None
    ) -> None:
        self.seen: list[str] = []
        self._inner = reconcile
        self.loop = ControlLoop("recorder", self.reconcile, api=cluster.api, backoff=BACKOFF)
        self.loop.watch_keys(CONFIGMAPS)

    @property
    def loops(self) -> tuple[ControlLoop, ...]:
        return (self.loop,)

    async def run(self) -> None:
        await self.loop.run()

    async def reconcile(self, key: ObjectKey) -> float | None:
        self.seen.append(key.name)
        return await self._inner(key) if self._inner else None


async def make(cluster: Stepper, name: str) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    await cluster.api.create(CONFIGMAPS, obj, namespace="default")


async def test_existing_objects_are_offered_at_the_start(cluster: Stepper) -> None:
    await make(cluster, "old")
    recorder = Recorder(cluster)
    cluster.start(recorder)
    await make(cluster, "new")
    await cluster.settle()
    assert recorder.seen == ["old", "new"]


async def test_many_events_are_one_reconcile(cluster: Stepper) -> None:
    recorder = Recorder(cluster)
    for _ in range(5):
        recorder.loop.add(key("a"))
    recorder.loop.add(key("b"))
    await recorder.loop.run_ready()
    assert recorder.seen == ["a", "b"]


async def test_an_event_during_a_reconcile_causes_one_more(cluster: Stepper) -> None:
    """Otherwise the change that arrives just then would be missed."""

    async def touch(touched: ObjectKey) -> None:
        if len(recorder.seen) == 1:
            recorder.loop.add(touched)
            recorder.loop.add(touched)

    recorder = Recorder(cluster, touch)
    recorder.loop.add(key("a"))
    await recorder.loop.run_ready()
    assert recorder.seen == ["a", "a"]


async def test_an_error_is_logged_and_retried_with_doubling_pauses(cluster: Stepper) -> None:
    async def fail(_: ObjectKey) -> None:
        raise RuntimeError("boom")

    recorder = Recorder(cluster, fail)
    cluster.start(recorder)
    with capture_logs() as logs:
        recorder.loop.add(key("a"))
        await cluster.settle()
        pauses = []
        for _ in range(4):
            due = recorder.loop.next_due
            assert due is not None
            pauses.append((due - cluster.now).total_seconds())
            await cluster.advance(pauses[-1])
    assert pauses == [1, 2, 4, 4]
    assert logs[0]["log_level"] == "error"
    assert logs[0]["event"] == "reconcile failed"


async def test_one_failing_key_does_not_hold_up_the_others(cluster: Stepper) -> None:
    async def fail_a(failing: ObjectKey) -> None:
        if failing.name == "a":
            raise RuntimeError("boom")

    recorder = Recorder(cluster, fail_a)
    with capture_logs():
        recorder.loop.add(key("a"))
        recorder.loop.add(key("b"))
        await recorder.loop.run_ready()
    assert recorder.seen == ["a", "b"]


async def test_a_conflict_is_no_news(cluster: Stepper) -> None:
    async def conflict(_: ObjectKey) -> None:
        if len(recorder.seen) == 1:
            raise StatusError(409, "Conflict", "modified")

    recorder = Recorder(cluster, conflict)
    cluster.start(recorder)
    with capture_logs() as logs:
        recorder.loop.add(key("a"))
        await cluster.advance(1)
    assert recorder.seen == ["a", "a"]
    assert [entry["log_level"] for entry in logs] == ["debug"]
    assert recorder.loop.next_due is None


async def test_a_delayed_key_becomes_due_at_its_time_unless_an_event_overtakes_it(cluster: Stepper) -> None:
    recorder = Recorder(cluster)
    cluster.start(recorder)
    recorder.loop.add_after(key("a"), 10)
    recorder.loop.add_after(key("a"), 20)
    await cluster.advance(9)
    assert recorder.seen == []
    await cluster.advance(1)
    assert recorder.seen == ["a"]
    await cluster.advance(30)
    assert recorder.seen == ["a"], "the later of two delays is dropped"
    recorder.loop.add_after(key("b"), 10)
    recorder.loop.add(key("b"))
    await recorder.loop.run_ready()
    assert recorder.seen == ["a", "b"]
    assert recorder.loop.next_due is None


async def test_run_works_until_cancelled_and_lets_go_of_the_store(cluster: Stepper) -> None:
    reconciled = asyncio.Event()

    async def note(_: ObjectKey) -> None:
        reconciled.set()

    recorder = Recorder(cluster, note)
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(0)
    await make(cluster, "a")
    async with asyncio.timeout(TIMEOUT):
        await reconciled.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await make(cluster, "b")
    assert await recorder.loop.run_ready() == 0
