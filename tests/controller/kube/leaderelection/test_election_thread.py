"""The election in a thread of its own, on real threads and the real clock."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import pytest

from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.leaderelection.election_thread import ElectionInThread, ElectionOnLoop
from trainmaster.controller.kube.leaderelection.elector import LeaderElector, LeaseLost
from trainmaster.controller.kube.leaderelection.lease import LeaseClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, Conflict, NotFound, NotLeading, TransportError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.metrics.controller import LeaderMetrics
from trainmaster.runtime.jsontree import JsonObject, copy_tree

if TYPE_CHECKING:  # a test imports this module where `support` is not
    from support.informers import Until

pytestmark = pytest.mark.usefixtures("debugged")

DEADLINE = 1.0


class LeaseServer:
    """One lease, in memory; may be called from any thread, one at a time."""

    def __init__(self) -> None:
        self.lease: JsonObject | None = None
        self.version = 0
        self.cut = False
        self.threads: set[str] = set()
        self.entered = self.left = 0

    @property
    def spec(self) -> JsonObject:
        assert self.lease is not None
        spec: JsonObject = self.lease["spec"]
        return spec

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.left += 1

    def _came(self) -> None:
        self.threads.add(threading.current_thread().name)
        if self.cut:
            raise TransportError("cut")

    def write(self, obj: JsonObject) -> JsonObject:
        self.version += 1
        self.lease = copy_tree(obj)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy_tree(self.lease)  # type: ignore[no-any-return] # a copy of a JSON object

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        self._came()
        if self.lease is None:
            raise NotFound(status=404)
        return copy_tree(self.lease)  # type: ignore[no-any-return] # a copy of a JSON object

    async def create(self, resource: Resource, obj: JsonObject) -> JsonObject:
        self._came()
        if self.lease is not None:
            raise AlreadyExists(status=409)
        return self.write(obj)

    async def update(self, resource: Resource, obj: JsonObject) -> JsonObject:
        self._came()
        if obj["metadata"].get("resourceVersion") != str(self.version):
            raise Conflict(status=409)
        return self.write(obj)


def make(client: LeaseClient, on_overrun: Callable[[], None]) -> LeaderElector:
    return LeaderElector(
        client,
        lease_namespace="ns",
        lease_name="lease",
        identity="a",
        lease_duration=2.0,
        renew_deadline=DEADLINE,
        retry_period=0.2,
        clock=SystemClock(),
        metrics=LeaderMetrics("in-thread"),
        on_overrun=on_overrun,
    )


class Work:
    """Work that says when it begins and ends."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.finish = asyncio.Event()
        self.stopping = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.ended = False
        self.thread = ""

    async def run(self) -> None:
        self.thread = threading.current_thread().name
        self.began.set()
        try:
            await self.finish.wait()
        finally:
            self.stopping.set()
            await self.may_end.wait()
            self.ended = True


@pytest.fixture
def api() -> LeaseServer:
    return LeaseServer()


@pytest.fixture
def work() -> Work:
    return Work()


def no_end(message: str) -> None:
    pytest.fail(message)


@pytest.mark.guarantee("L-15")
async def test_a_blocked_main_loop_keeps_the_lease(api: LeaseServer, work: Work) -> None:
    """Blocked for much longer than the renew deadline, and than the lease itself."""
    election = ElectionInThread(api, make, end=no_end)
    running = asyncio.create_task(election.run(work.run))
    await asyncio.wait_for(work.began.wait(), 10)
    before = dict(api.spec)
    time.sleep(3 * DEADLINE)  # noqa: ASYNC251 - the very thing
    after = dict(api.spec)
    election.guard()
    assert election.is_healthy()
    assert after["renewTime"] > before["renewTime"]
    unchanged = ("holderIdentity", "acquireTime", "leaseTransitions")
    assert [after[field] for field in unchanged] == [before[field] for field in unchanged]
    work.finish.set()
    await running


@pytest.mark.guarantee("L-4", "L-11", "P-30")
async def test_the_election_keeps_to_itself_and_leaves_nothing(api: LeaseServer, work: Work) -> None:
    election = ElectionInThread(api, make, end=no_end)
    with pytest.raises(NotLeading):
        election.guard()
    running = asyncio.create_task(election.run(work.run))
    await asyncio.wait_for(work.began.wait(), 10)
    election.guard()
    assert work.thread == threading.current_thread().name
    assert api.threads == {"leader-election"}
    work.finish.set()
    await running
    assert api.spec["holderIdentity"] == ""
    with pytest.raises(NotLeading):
        election.guard()
    assert (api.entered, api.left) == (1, 1)
    assert "leader-election" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.guarantee("L-11")
@pytest.mark.parametrize("kind", [ElectionInThread, ElectionOnLoop])
async def test_cancelled_it_ends_the_work_and_then_releases(
    api: LeaseServer, work: Work, until: Until, kind: type[ElectionInThread | ElectionOnLoop]
) -> None:
    work.may_end.clear()
    running = asyncio.create_task(kind(api, make).run(work.run))
    await asyncio.wait_for(work.began.wait(), 10)
    running.cancel()
    await asyncio.wait_for(work.stopping.wait(), 10)
    before = api.version
    await until(lambda: api.version > before)
    assert api.spec["holderIdentity"] == "a", "it is renewed until the work has ended"
    work.may_end.set()
    await asyncio.wait({running})
    assert running.cancelled()
    assert work.ended
    assert api.spec["holderIdentity"] == ""


@pytest.mark.guarantee("L-11")
async def test_cancelled_again_it_does_not_wait_for_the_work(api: LeaseServer, work: Work) -> None:
    work.may_end.clear()
    running = asyncio.create_task(ElectionInThread(api, make, end=no_end).run(work.run))
    await asyncio.wait_for(work.began.wait(), 10)
    running.cancel()
    await asyncio.wait_for(work.stopping.wait(), 10)
    running.cancel()
    await asyncio.wait_for(asyncio.wait({running}), 3)
    assert running.cancelled()
    assert not work.ended
    assert api.spec["holderIdentity"] == "a"
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@pytest.mark.guarantee("L-12")
@pytest.mark.parametrize("kind", [ElectionInThread, ElectionOnLoop])
async def test_cancelled_as_a_candidate_it_leaves_nothing(
    api: LeaseServer, work: Work, until: Until, kind: type[ElectionInThread | ElectionOnLoop]
) -> None:
    metadata = {"namespace": "ns", "name": "lease"}
    api.write({"metadata": metadata, "spec": {"holderIdentity": "z", "leaseDurationSeconds": 3600}})
    before = asyncio.all_tasks()
    running = asyncio.create_task(kind(api, make).run(work.run))
    await until(lambda: api.threads)  # it has seen who holds the lease
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert not work.began.is_set()
    assert (api.entered, api.left) == (1, 1)
    assert asyncio.all_tasks() == before


@pytest.mark.guarantee("L-9", "L-10")
@pytest.mark.parametrize("kind", [ElectionInThread, ElectionOnLoop])
async def test_a_lost_lease_cancels_the_work_and_is_raised(
    api: LeaseServer, work: Work, kind: type[ElectionInThread | ElectionOnLoop]
) -> None:
    election = kind(api, make)
    running = asyncio.create_task(election.run(work.run))
    await asyncio.wait_for(work.began.wait(), 10)
    api.cut = True
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(running, 10)
    assert work.ended
    with pytest.raises(NotLeading):
        election.guard()
    assert api.spec["holderIdentity"] == "a", "it was lost, so it is not ours to release"


@pytest.mark.guarantee("L-11")
async def test_a_failure_of_the_work_is_raised(api: LeaseServer) -> None:
    async def fail() -> None:
        raise ValueError("bug in the work")

    with pytest.raises(ValueError, match="bug in the work"):
        await ElectionInThread(api, make, end=no_end).run(fail)
    assert api.spec["holderIdentity"] == ""


@pytest.mark.guarantee("L-10")
async def test_work_that_goes_on_after_the_loss_ends_the_process(api: LeaseServer, work: Work) -> None:
    """Here on a loop that turns; what a blocked one does is the matter of the next test."""
    ends: list[str] = []
    work.may_end.clear()
    running = asyncio.create_task(ElectionInThread(api, make, end=ends.append).run(work.run))
    await asyncio.wait_for(work.began.wait(), 10)
    api.cut = True
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(running, 10)
    assert len(ends) == 1
    assert "did not stop in time" in ends[0]
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@pytest.mark.guarantee("P-34")
async def test_the_machinery_is_tested_in_debug_mode() -> None:
    """In it asyncio checks that each loop is called from its own thread; `debugged` fails tests it complains about."""
    assert asyncio.get_running_loop().get_debug()


@pytest.mark.nightly
@pytest.mark.guarantee("L-10", "L-15")
def test_a_blocked_main_loop_that_lost_the_lease_dies_in_time() -> None:
    """In a process of its own: nothing but the end of the process keeps a blocked loop from writing."""
    script = textwrap.dedent(
        """
        import asyncio, sys, time
        sys.path.insert(0, sys.argv[1])
        from test_election_thread import LeaseServer, make
        from trainmaster.controller.kube.leaderelection.election_thread import ElectionInThread

        async def main():
            api = LeaseServer()
            async def work():
                api.cut = True
                print("blocked", flush=True)
                time.sleep(60)
                print("writing", flush=True)
            await ElectionInThread(api, make).run(work)

        asyncio.run(main())
        """
    )
    directory = __file__.rpartition("/")[0]
    started = time.monotonic()
    ran: subprocess.CompletedProcess[Any] = subprocess.run(
        [sys.executable, "-c", script, directory], capture_output=True, text=True, timeout=50, check=False
    )
    assert ran.returncode == 1, ran.stderr
    assert "blocked" in ran.stdout
    assert "writing" not in ran.stdout
    assert "did not stop in time" in ran.stdout + ran.stderr
    assert "__main__.main.<locals>.work" in ran.stdout + ran.stderr, "it says what the main thread was doing"
    assert time.monotonic() - started < 40
