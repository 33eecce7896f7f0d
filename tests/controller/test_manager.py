"""The manager: how it starts, how it stops, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.stack import QUIET, Stack, api_server

from trainmaster.controller import manager as managing
from trainmaster.controller.configuration import LeaderElection
from trainmaster.controller.kube.errors import NotFound
from trainmaster.controller.kube.events import EventRecorder
from trainmaster.controller.kube.queueing import WorkQueue
from trainmaster.controller.kube.resources import LEASES
from trainmaster.controller.manager import Manager
from trainmaster.controller.reconciling.controller import Controller
from trainmaster.controller.reconciling.outcomes import DONE, Outcome
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

ELECTION = QUIET.model_copy(update={"leader_election": LeaderElection(leader_elect=True, resource_namespace="default")})


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        yield stack


async def said(logged: Sequence[MutableMapping[str, Any]], event: str) -> None:
    """Wait until something was logged."""
    async with asyncio.timeout(15):
        while not any(entry["event"] == event for entry in logged):
            await asyncio.sleep(0.01)


async def lease(stack: Stack) -> JsonObject:
    async with asyncio.timeout(15):
        while True:
            try:
                return (await stack.client.get(LEASES, "default", "trainer.kubeflow.org"))["spec"]  # type: ignore[no-any-return] # JSON
            except NotFound:
                await asyncio.sleep(0.02)


async def test_losing_the_lease_ends_every_reconcile() -> None:
    """L-9: another replica may act now, so the work is over when its cancellation is, and not some time later."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def reconcile(key: str) -> Outcome:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return DONE

    queue = WorkQueue()
    queue.add("a/b")
    stopped = asyncio.create_task(asyncio.Event().wait())
    controllers = [Controller("losing", reconcile, queue, workers=1)]
    working = asyncio.create_task(managing._run_controllers(controllers, stopped))
    await asyncio.wait_for(started.wait(), 5)
    working.cancel()
    await asyncio.wait([working])
    stopped.cancel()
    assert working.cancelled()
    assert ended.is_set()


async def test_a_failure_in_the_background_ends_the_manager_and_releases_the_lease(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M-5: the next replica need not wait for the lease to expire, and nobody acts on caches that stand still."""
    fail = asyncio.Event()

    async def run(self: EventRecorder) -> None:
        await fail.wait()
        raise RuntimeError("broken")

    monkeypatch.setattr(EventRecorder, "run", run)
    running = asyncio.create_task(Manager(stack.access, ELECTION, Framework(load_plugins())).run(asyncio.Event()))
    assert (await lease(stack))["holderIdentity"]
    fail.set()
    with pytest.raises(RuntimeError, match="broken"):
        await asyncio.wait_for(running, 15)
    assert (await lease(stack))["holderIdentity"] == ""
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert not any(name.startswith(("trainjob_controller", "informer")) for name in left)


async def test_it_stops_while_it_waits_for_the_lease(stack: Stack) -> None:
    theirs = {"holderIdentity": "other", "leaseDurationSeconds": 3600, "leaseTransitions": 0}
    metadata = {"name": "trainer.kubeflow.org", "namespace": "default"}
    await stack.client.create(
        LEASES, {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": theirs}
    )
    stop = asyncio.Event()
    with capture_logs() as logged:
        running = asyncio.create_task(Manager(stack.access, ELECTION, Framework(load_plugins())).run(stop))
        await said(logged, "waiting for the lease")
    stop.set()
    await asyncio.wait_for(running, 5)
    assert (await lease(stack))["holderIdentity"] == "other"


async def test_it_stops_while_the_caches_wait_for_their_kinds(tmp_path: Path) -> None:
    async with api_server(tmp_path, definitions=False) as stack:
        stop = asyncio.Event()
        with capture_logs() as logged:
            running = asyncio.create_task(Manager(stack.access, QUIET, Framework(load_plugins())).run(stop))
            await said(logged, "collection cannot be read, trying again")
        stop.set()
        await asyncio.wait_for(running, 5)
