"""The election in a thread of its own, and on the loop of the work."""

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias

import pytest
from support.commands import TIMEOUT, eventually
from support.leases import LeaseClient, LeaseServer

from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.leaderelection.election_thread import (
    Election,
    ElectionClient,
    ElectionInThread,
    MakeElector,
)
from trainmaster.controller.kube.leaderelection.elector import LeaderElector, LeaseLost
from trainmaster.controller.kube.rest.errors import NotLeading
from trainmaster.metrics.controller import LeaderMetrics

pytestmark = pytest.mark.usefixtures("debugged")


class Connection(LeaseClient):
    """A way to a server of its own that may be used from any thread, one at a time."""

    def __init__(self) -> None:
        super().__init__(LeaseServer())
        self.threads: set[str] = set()
        self.entered = self.left = 0
        self.stolen = False

    @property
    def holder(self) -> Any:
        return self.server.spec["holderIdentity"]

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.left += 1

    async def _pass(self, call: str) -> None:
        self.threads.add(threading.current_thread().name)
        if self.stolen and self.server.lease is not None:
            self.server.write({**self.server.lease, "spec": {**self.server.spec, "holderIdentity": "z"}})
        await super()._pass(call)


def make(
    client: Any, on_overrun: Callable[[], None], *, lease: float = 600.0, deadline: float = 400.0, retry: float = 0.01
) -> LeaderElector:
    """An elector that renews often, and loses nothing because the machine is slow."""
    return LeaderElector(
        client,
        lease_namespace="ns",
        lease_name="lease",
        identity="a",
        lease_duration=lease,
        renew_deadline=deadline,
        retry_period=retry,
        clock=SystemClock(),
        metrics=LeaderMetrics("in-thread"),
        on_overrun=on_overrun,
    )


def make_hasty(client: Any, on_overrun: Callable[[], None]) -> LeaderElector:
    """An elector whose lease expires soon."""
    return make(client, on_overrun, lease=2.0, deadline=1.0, retry=0.2)


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
def api() -> Connection:
    return Connection()


@pytest.fixture
def work() -> Work:
    return Work()


async def begun(election: ElectionInThread | Election, work: Work) -> asyncio.Task[None]:
    """Run an election until the work has begun."""
    running = asyncio.create_task(election.run(work.run))
    await asyncio.wait_for(work.began.wait(), TIMEOUT)
    return running


def no_end(message: str) -> None:
    pytest.fail(message)


MakeElection: TypeAlias = Callable[[ElectionClient, MakeElector], Election]
EITHER = pytest.mark.parametrize("kind", [partial(ElectionInThread, end=no_end), Election], ids=["thread", "loop"])


@pytest.mark.guarantee("L-15")
async def test_a_blocked_main_loop_keeps_the_lease(api: Connection, work: Work) -> None:
    election = ElectionInThread(api, make, end=no_end)
    running = await begun(election, work)
    before, version = dict(api.server.spec), api.server.version
    given_up = time.monotonic() + TIMEOUT
    while api.server.version < version + 5 and time.monotonic() < given_up:
        time.sleep(0.001)  # noqa: ASYNC251 - the very thing
    after = dict(api.server.spec)
    election.elector.guard()
    assert election.elector.is_healthy()
    assert after["renewTime"] > before["renewTime"]
    unchanged = ("holderIdentity", "acquireTime", "leaseTransitions")
    assert [after[field] for field in unchanged] == [before[field] for field in unchanged]
    work.finish.set()
    await running


@pytest.mark.guarantee("L-4", "L-11", "P-30")
async def test_the_election_keeps_to_itself_and_leaves_nothing(api: Connection, work: Work) -> None:
    election = ElectionInThread(api, make, end=no_end)
    with pytest.raises(NotLeading):
        election.elector.guard()
    running = await begun(election, work)
    election.elector.guard()
    assert work.thread == threading.current_thread().name
    assert api.threads == {"leader-election"}
    work.finish.set()
    await running
    assert api.holder == ""
    with pytest.raises(NotLeading):
        election.elector.guard()
    assert (api.entered, api.left) == (1, 1)
    assert "leader-election" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.guarantee("L-11")
@EITHER
async def test_cancelled_it_ends_the_work_and_then_releases(api: Connection, work: Work, kind: MakeElection) -> None:
    work.may_end.clear()
    running = await begun(kind(api, make), work)
    running.cancel()
    await asyncio.wait_for(work.stopping.wait(), TIMEOUT)
    before = api.server.version
    await eventually(lambda: api.server.version > before)
    assert api.holder == "a", "it is renewed until the work has ended"
    work.may_end.set()
    await asyncio.wait({running})
    assert running.cancelled()
    assert work.ended
    assert api.holder == ""


@pytest.mark.guarantee("L-11")
async def test_cancelled_again_it_does_not_wait_for_the_work(api: Connection, work: Work) -> None:
    work.may_end.clear()
    running = await begun(ElectionInThread(api, make, end=no_end), work)
    running.cancel()
    await asyncio.wait_for(work.stopping.wait(), TIMEOUT)
    running.cancel()
    await asyncio.wait_for(asyncio.wait({running}), TIMEOUT)
    assert running.cancelled()
    assert not work.ended
    assert api.holder == "a"
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@pytest.mark.guarantee("L-12")
@EITHER
async def test_cancelled_as_a_candidate_it_leaves_nothing(api: Connection, work: Work, kind: MakeElection) -> None:
    metadata = {"namespace": "ns", "name": "lease"}
    api.server.write({"metadata": metadata, "spec": {"holderIdentity": "z", "leaseDurationSeconds": 3600}})
    before = asyncio.all_tasks()
    running = asyncio.create_task(kind(api, make).run(work.run))
    await eventually(lambda: api.threads)  # it has seen who holds the lease
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert not work.began.is_set()
    assert (api.entered, api.left) == (1, 1)
    assert asyncio.all_tasks() == before


@pytest.mark.guarantee("L-10")
@EITHER
async def test_a_lost_lease_cancels_the_work_and_is_raised(api: Connection, work: Work, kind: MakeElection) -> None:
    election = kind(api, make)
    running = await begun(election, work)
    api.stolen = True
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(running, TIMEOUT)
    assert work.ended
    with pytest.raises(NotLeading):
        election.elector.guard()
    assert api.holder == "z", "it was lost, so it is not ours to release"


@pytest.mark.guarantee("L-11")
@EITHER
async def test_a_failure_of_the_work_is_raised(api: Connection, kind: MakeElection) -> None:
    async def fail() -> None:
        raise ValueError("bug in the work")

    with pytest.raises(ValueError, match="bug in the work"):
        await kind(api, make).run(fail)
    assert api.holder == ""


@pytest.mark.nightly
@pytest.mark.guarantee("L-9", "L-10")
async def test_work_that_goes_on_after_the_loss_ends_the_process(api: Connection, work: Work) -> None:
    """Here on a loop that turns; what a blocked one does is the matter of the last test."""
    ends: list[str] = []
    work.may_end.clear()
    running = await begun(ElectionInThread(api, make_hasty, end=ends.append), work)
    api.cut = True
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(running, TIMEOUT)
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
def test_a_blocked_main_loop_that_lost_the_lease_dies_before_it_writes_again() -> None:
    """In a process of its own: nothing but the end of the process keeps a blocked loop from writing."""
    script = textwrap.dedent(
        """
        import asyncio, sys, time
        sys.path[:0] = sys.argv[1:]
        from test_election_thread import Connection, make_hasty
        from trainmaster.controller.kube.leaderelection.election_thread import ElectionInThread
        from trainmaster.controller.manager.process import end_process

        async def main():
            api = Connection()
            async def work():
                api.cut = True
                print("blocked", flush=True)
                time.sleep(3600)
                print("writing", flush=True)
            await ElectionInThread(api, make_hasty, end=end_process).run(work)

        asyncio.run(main())
        """
    )
    here = Path(__file__)
    command = [sys.executable, "-c", script, str(here.parent), str(here.parents[3])]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert ran.returncode == 1, ran.stderr
    assert "blocked" in ran.stdout
    assert "writing" not in ran.stdout
    assert "did not stop in time" in ran.stdout + ran.stderr
    assert "__main__.main.<locals>.work" in ran.stdout + ran.stderr, "it says what the main thread was doing"
