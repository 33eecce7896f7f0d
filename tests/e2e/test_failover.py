"""Two managers as processes, each behind a proxy of its own; the leader dies, sleeps, is cut off or is told to stop.

The judge is the audit log of the API server: it knows who wrote what and when, whatever the managers believe.
"""

import asyncio
import os
import secrets
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from support.audit import AuditedWrite, AuditLogReader
from support.commands import eventually
from support.processes import ClusterProcess, ManagerProcess, account_token, cluster_process
from support.proxy import Direction, FaultProxy
from support.training import apply_runtime, runtime, trainjob, until

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.resources import JOBSETS, TRAINJOBS

TIMEOUT = 240
"""Each of these tests takes a minute on a machine that is busy with others."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(TIMEOUT)]

LEASE, RENEWAL, RETRY = 10.0, 6.0, 0.5
"""The lease is so much longer than the time after which a leader gives up that a busy machine does not matter."""

ELECTION = {
    "leaderElect": True,
    "leaseDuration": f"{LEASE:g}s",
    "renewDeadline": f"{RENEWAL:g}s",
    "retryPeriod": f"{RETRY:g}s",
}
LOOKS = 8
"""How often a candidate may look at a lease that has expired, or was given up, before it has it: it may have seen the
last renewal late by one look, and that it has expired by another one. The rest is for looks that are close together."""

PAUSE = 60.0 if os.environ.get("TRAINMASTER_SOAK_MINUTES") else 15.0
"""How long a leader is stopped; both are longer than its lease."""


@dataclass
class Duel:
    """A leader, a candidate, and TrainJobs that come all the time."""

    name: str
    client: KubeClient
    leader: ManagerProcess
    wire: FaultProxy
    """Between the leader and the server."""

    candidate: ManagerProcess
    audit: AuditLogReader
    created: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def jobs_coming(self) -> AsyncIterator[None]:
        """Create TrainJobs while the block runs, which begins when the leader is in the middle of its work, and for a
        while longer; each of them gets its JobSet."""
        enough = asyncio.Event()

        async def create() -> None:
            while not enough.is_set():
                name = f"{self.name}-{len(self.created)}"
                await self.client.create(TRAINJOBS, trainjob(name))
                self.created.append(name)
                await asyncio.sleep(0.1)

        async with asyncio.TaskGroup() as group:
            group.create_task(create())
            await self._some_more()
            await until(self._leader_works)
            yield
            await self._some_more()
            enough.set()
        await until(self._all_have_jobsets)

    async def _some_more(self) -> None:
        number = len(self.created) + 5
        await eventually(lambda: len(self.created) >= number)

    async def _leader_works(self) -> bool:
        return any(write.resource == "jobsets" for write in self.audit.by(self.leader.user))

    async def _all_have_jobsets(self) -> bool:
        jobsets = (await self.client.list(JOBSETS, "default"))["items"]
        return {jobset["metadata"]["name"] for jobset in jobsets} >= set(self.created)

    async def taken_over(self) -> AuditedWrite:
        """Wait until the candidate has the lease; returns the write by which it got it."""
        acquisition: AuditedWrite = await until(self._acquisition)
        return acquisition

    async def _acquisition(self) -> AuditedWrite | None:
        return next((write for write in self.audit.by(self.candidate.user) if _renews(write)), None)

    def check(self, acquisition: AuditedWrite, *, since: float) -> None:
        """Compare what happened with what may happen, where the lease could be taken since a moment."""
        old, new = self.audit.by(self.leader.user), self.audit.by(self.candidate.user)
        looks = [each for each in self.audit.reads(self.candidate.user) if _of_lease(each)]
        looks = [each for each in looks if since < each.received < acquisition.received]
        assert len(looks) <= LOOKS, "the candidate looked at the lease and left it"
        late = [write for write in old if write.may_have_counted and write.received > acquisition.answered]
        assert not late, "the old leader wrote after the new one had acquired the lease"
        early = [write for write in new if not _of_lease(write) and write.received < acquisition.received]
        assert not early, "the candidate wrote before it led"
        renewals = [write.received for write in old if _renews(write)]
        expired = [write for write in old if not any(0 <= write.received - at <= LEASE for at in renewals)]
        assert not [write for write in expired if write.may_have_counted and not _of_lease(write)]
        made = Counter(w.name for w in (*old, *new) if w.resource == "jobsets" and w.code == 201)
        assert made == Counter(self.created), "every TrainJob has one JobSet"
        assert any(write.name == self.created[-1] for write in new), "the new leader works"

    def last_renewal(self) -> float:
        """When the server last heard a renewal of the old leader."""
        return max(write.received for write in self.audit.by(self.leader.user) if _renews(write))


def _of_lease(write: AuditedWrite) -> bool:
    return write.resource == "leases"


def _renews(write: AuditedWrite) -> bool:
    return _of_lease(write) and write.code is not None and write.code < 300


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[ClusterProcess, KubeClient]]:
    """A cluster for all duels, and a client of its administrator."""
    async with cluster_process(tmp_path_factory.mktemp("failover")) as (cluster, client):
        await apply_runtime(client, runtime())
        yield cluster, client


@pytest_asyncio.fixture(loop_scope="module")
async def duel(cluster: tuple[ClusterProcess, KubeClient]) -> AsyncIterator[Duel]:
    """Two managers that share a lease, accounts and TrainJobs with no other duel."""
    process, client = cluster
    name = f"duel-{secrets.token_hex(3)}"
    configuration = {"leaderElection": {**ELECTION, "resourceName": name}}
    async with AsyncExitStack() as stack:
        managers: list[ManagerProcess] = []
        wires: list[FaultProxy] = []
        for role in ("first", "second"):
            wire = await stack.enter_async_context(await FaultProxy.start("127.0.0.1", process.port))
            account = f"{name}-{role}"
            token = await account_token(client, account)
            manager = ManagerProcess(process, account, token=token, port=wire.port, configuration=configuration)
            stack.push_async_callback(manager.kill)
            await manager.start()
            # The first one leads, since the second one starts when that is so.
            await manager.logged("waiting for the lease" if managers else "lease acquired")
            managers.append(manager)
            wires.append(wire)
        yield Duel(name, client, managers[0], wires[0], managers[1], AuditLogReader(process.audit_log))
    for resource in (TRAINJOBS, JOBSETS):
        await client.raw("DELETE", resource.path("default"))


@pytest.mark.guarantee("L-5")
async def test_a_leader_that_was_killed_is_followed_when_its_lease_has_expired(duel: Duel) -> None:
    async with duel.jobs_coming():
        await duel.leader.kill()
        acquisition = await duel.taken_over()
    duel.check(acquisition, since=duel.last_renewal() + LEASE)


@pytest.mark.guarantee("L-14")
@pytest.mark.timeout(TIMEOUT + PAUSE)
async def test_a_leader_that_slept_past_its_lease_writes_nothing_when_it_wakes_up(duel: Duel) -> None:
    async with duel.jobs_coming():
        duel.leader.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        acquisition = await duel.taken_over()
        await asyncio.sleep(max(0.0, stopped + PAUSE - time.monotonic()))
        duel.leader.signal(signal.SIGCONT)
        assert await duel.leader.wait() == 1
    duel.check(acquisition, since=duel.last_renewal() + LEASE)


@pytest.mark.guarantee("L-9", "L-10")
@pytest.mark.parametrize(
    "cut_off",
    [
        lambda wire: wire.black_hole(True),
        lambda wire: wire.black_hole(True, Direction.TO_CLIENT),
        lambda wire: wire.cut(True),
    ],
    ids=["silence", "answers-vanish", "refused"],
)
async def test_a_leader_that_is_cut_off_gives_up_in_time(duel: Duel, cut_off: Callable[[FaultProxy], None]) -> None:
    async with duel.jobs_coming():
        cut_off(duel.wire)
        assert await duel.leader.wait() == 1
        ended = time.time()
        acquisition = await duel.taken_over()
        assert ended < acquisition.received
        duel.wire.heal()
    duel.check(acquisition, since=duel.last_renewal() + LEASE)


@pytest.mark.guarantee("L-11")
async def test_a_leader_that_is_told_to_stop_hands_over_at_once(duel: Duel) -> None:
    async with duel.jobs_coming():
        duel.leader.signal(signal.SIGTERM)
        assert await duel.leader.wait() == 0
        given_up = duel.last_renewal()
        acquisition = await duel.taken_over()
    duel.check(acquisition, since=given_up)
