"""The generic controller loop (K-2 to K-6) and the read-your-writes gate (C-4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from trainmaster.controller.kube.errors import Conflict, TransportError
from trainmaster.controller.kube.queueing import WorkQueue
from trainmaster.controller.kube.storing import Store
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.reconciling.gate import WriteGate
from trainmaster.controller.reconciling.outcomes import DONE, NotYet, Outcome, RequeueAfter, Retry


async def run(
    reconcile: Callable[[str], Awaitable[Outcome]], *keys: str, until: asyncio.Event, name: str, timeout: float = 60
) -> WorkQueue:
    queue = WorkQueue()
    for key in keys:
        queue.add(key)
    controller = Controller(name, reconcile, queue, workers=2, timeout=timeout)
    running = asyncio.create_task(controller.run())
    await asyncio.wait_for(until.wait(), 10)
    queue.shut_down()
    await asyncio.wait_for(running, 10)
    return queue


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("unforeseen"),
        TransportError("connection refused"),
        Conflict(status=409, reason="Conflict", message="changed"),
    ],
)
async def test_k4_an_error_is_retried_and_ends_no_worker(error: Exception) -> None:
    seen: list[str] = []
    finished = asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        seen.append(key)
        if len(seen) < 3:
            raise error
        finished.set()
        return DONE

    queue = await run(reconcile, "a/b", until=finished, name=f"errors-{type(error).__name__}")
    assert seen == ["a/b"] * 3
    assert queue.num_requeues("a/b") == 0


async def test_k3_requeue_after_forgets_failures_and_comes_back() -> None:
    outcomes: list[Outcome] = [Retry("not yet"), RequeueAfter(0.01), DONE]
    finished = asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        outcome = outcomes.pop(0)
        if not outcomes:
            finished.set()
        return outcome

    await run(reconcile, "a/b", until=finished, name="requeues")
    assert outcomes == []


async def test_waiting_for_own_writes_forgets_no_failures() -> None:
    """C-4: otherwise the backoff of a job whose tries end in a write would start over each time."""
    outcomes: list[Outcome] = [Retry("no"), Retry("no"), NotYet(0.01), NotYet(100)]
    finished = asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        outcome = outcomes.pop(0)
        if not outcomes:
            finished.set()
        return outcome

    queue = await run(reconcile, "a/b", until=finished, name="not-yet")
    assert queue.num_requeues("a/b") == 2


async def test_a_retry_comes_at_the_latest_when_it_must() -> None:
    outcomes: list[Outcome] = [*[Retry("no", at_latest=100)] * 9, Retry("no", at_latest=0.01), DONE]
    finished = asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        outcome = outcomes.pop(0)
        if not outcomes:
            finished.set()
        return outcome

    await run(reconcile, "a/b", until=finished, name="at-latest")
    assert outcomes == []


async def test_k2_a_reconcile_that_hangs_is_cancelled_and_retried() -> None:
    calls = 0
    finished = asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()
        finished.set()
        return DONE

    await run(reconcile, "a/b", until=finished, name="hanging", timeout=0.05)
    assert calls == 2


async def test_k6_workers_finish_what_they_are_at() -> None:
    started, ended = asyncio.Event(), []
    release = asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        started.set()
        await release.wait()
        ended.append(key)
        return DONE

    async def release_after_shutdown() -> None:
        await started.wait()
        release.set()

    helper = asyncio.create_task(release_after_shutdown())
    await run(reconcile, "a/b", until=started, name="stopping")
    await helper
    assert ended == ["a/b"]


def store_at(version: int) -> Store:
    store = Store()
    store.replace([], resource_version=str(version))
    return store


def test_c4_the_gate_opens_when_the_cache_has_seen_the_write() -> None:
    gate, store = WriteGate(), store_at(5)
    gate.record("a/b", "JobSet", "7", store)
    assert not gate.is_open("a/b")
    assert gate.is_open("a/other")
    store.advance("7")
    assert gate.is_open("a/b")


def test_c4_every_kind_has_to_catch_up() -> None:
    gate, behind = WriteGate(), store_at(1)
    gate.record("a/b", "ConfigMap", "7", store_at(9))
    gate.record("a/b", "JobSet", "8", behind)
    assert not gate.is_open("a/b")
    behind.advance("8")
    assert gate.is_open("a/b")


def test_c5_a_version_that_is_no_number_holds_nothing_up() -> None:
    gate = WriteGate()
    gate.record("a/b", "JobSet", "opaque", store_at(0))
    assert gate.is_open("a/b")


def test_a_forgotten_key_is_open() -> None:
    gate = WriteGate()
    gate.record("a/b", "JobSet", "7", store_at(0))
    gate.forget("a/b")
    assert gate.is_open("a/b")
