"""Candidates for one lease, in virtual time."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.leaderelection.elector import LeaderElector, LeaseLost, new_identity
from trainmaster.controller.kube.rest.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    NotLeading,
    TransportError,
)
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject, copy_tree

pytestmark = pytest.mark.usefixtures("debugged")


class LeaseServer:
    """Keeps one lease with optimistic locking."""

    def __init__(self) -> None:
        self.lease: JsonObject | None = None
        self.version = 0
        self.calls: list[str] = []

    @property
    def spec(self) -> JsonObject:
        assert self.lease is not None
        spec: JsonObject = self.lease["spec"]
        return spec

    def write(self, obj: JsonObject) -> JsonObject:
        self.version += 1
        self.lease = copy_tree(obj)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy_tree(self.lease)  # type: ignore[no-any-return] # a copy of a JSON object


class LeaseClient:
    """The way of one candidate to the server; it can be cut or become endless, or lose the answers to writes."""

    def __init__(self, server: LeaseServer) -> None:
        self.server = server
        self.cut = False
        self.hanging = False
        self.deaf = False
        self.forbidden: set[str] = set()

    async def _pass(self, call: str) -> None:
        if self.hanging:
            await asyncio.Event().wait()
        if self.cut:
            raise TransportError("cut")
        if call in self.forbidden:
            raise Forbidden(status=403, reason="Forbidden", message=f"cannot {call}")
        self.server.calls.append(call)

    async def _answer(self, obj: JsonObject) -> JsonObject:
        if self.deaf:
            await asyncio.Event().wait()
        return obj

    async def get(self, resource: Resource, namespace: str | None, name: str) -> JsonObject:
        await self._pass("get")
        if self.server.lease is None:
            raise NotFound(status=404)
        return copy_tree(self.server.lease)  # type: ignore[no-any-return] # a copy of a JSON object

    async def create(self, resource: Resource, obj: JsonObject) -> JsonObject:
        await self._pass("create")
        if self.server.lease is not None:
            raise AlreadyExists(status=409)
        return await self._answer(self.server.write(obj))

    async def update(self, resource: Resource, obj: JsonObject) -> JsonObject:
        await self._pass("update")
        if self.server.lease is None:
            raise NotFound(status=404)
        if obj["metadata"].get("resourceVersion") != str(self.server.version):
            raise Conflict(status=409)
        return await self._answer(self.server.write(obj))


class Candidate:
    """An elector, its connection and what its work is doing."""

    def __init__(self, server: LeaseServer, clock: VirtualClock, identity: str, **options: Any) -> None:
        self.client = LeaseClient(server)
        self.elector = LeaderElector(
            self.client,
            lease_namespace="ns",
            lease_name=options.pop("lease_name", "lease"),
            identity=identity,
            clock=clock,
            random=options.pop("random", lambda: 0.0),
            **options,
        )
        self.working = False
        self.release = asyncio.Event()
        self.stopping_takes = 0.0
        self.clock = clock
        self.task = asyncio.create_task(self.elector.run(self.work))

    async def work(self) -> None:
        self.working = True
        try:
            await self.release.wait()
        finally:
            try:
                await self.clock.sleep(self.stopping_takes)
            finally:
                self.working = False


@pytest.fixture
def virtual() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def api() -> LeaseServer:
    return LeaseServer()


async def end(*candidates: Candidate) -> None:
    for candidate in candidates:
        candidate.task.cancel()
    await asyncio.wait({candidate.task for candidate in candidates})


async def test_l1_l8_first_candidate_leads_and_renews_by_writes_only(api: LeaseServer, virtual: VirtualClock) -> None:
    """L-1, L-2, L-8: one read, then only writes."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(0)
    assert first.working
    first.elector.guard()
    assert api.spec == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    await virtual.advance(6)
    assert api.spec["renewTime"] == "2026-01-01T00:00:06.000000Z"
    assert api.spec["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert api.calls == ["get", "create", "update", "update", "update"]
    await end(first)


async def test_l1_l11_second_candidate_waits_and_takes_over_after_a_release(
    api: LeaseServer, virtual: VirtualClock
) -> None:
    """L-11: a clean stop hands the lease over at once; transitions count holders."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    second = Candidate(api, virtual, "b")
    await virtual.advance(60)
    assert not second.working
    first.release.set()
    await virtual.advance(0)
    assert first.task.done()
    assert first.task.exception() is None
    assert api.spec["holderIdentity"] == ""
    assert api.spec["leaseDurationSeconds"] == 1
    assert api.spec["leaseTransitions"] == 0
    await virtual.advance(2)
    assert second.working
    assert api.spec["leaseTransitions"] == 1
    await end(second)


async def test_l11_lease_is_released_only_after_the_work_has_ended(api: LeaseServer, virtual: VirtualClock) -> None:
    """L-11: and until then it is renewed, however long the work takes to stop."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    second = Candidate(api, virtual, "b")
    first.stopping_takes = 40
    first.task.cancel()
    await virtual.advance(39)
    assert first.working
    assert api.spec["holderIdentity"] == "a"
    assert not second.working
    await virtual.advance(4)
    assert not first.working
    assert first.task.cancelled()
    assert second.working
    await end(second)


async def test_l11_lease_of_work_that_does_not_end_is_left_to_expire(api: LeaseServer, virtual: VirtualClock) -> None:
    """L-11: a second cancellation gives up waiting for the work, which may still act; nobody may follow at once."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    first.stopping_takes = 1000
    first.task.cancel()
    await virtual.advance(1)
    first.task.cancel()
    await virtual.advance(1)
    assert first.task.cancelled()
    assert first.working
    assert api.spec["holderIdentity"] == "a"
    await virtual.advance(1000)


async def test_l5_l9_l10_leader_that_is_cut_off_stops_before_another_starts(
    api: LeaseServer, virtual: VirtualClock
) -> None:
    """L-5, L-9, L-10, L-16"""
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    second = Candidate(api, virtual, "b")
    await virtual.advance(3)
    first.client.cut = True
    for _ in range(300):
        await virtual.advance(0.1)
        assert not (first.working and second.working)
        if second.working:
            break
    assert second.working
    with pytest.raises(LeaseLost, match="ns/lease"):
        await first.task
    with pytest.raises(NotLeading):
        first.elector.guard()
    assert api.spec["holderIdentity"] == "b"
    await end(second)


async def test_l4_l9_hanging_requests_lose_the_lease_in_time(api: LeaseServer, virtual: VirtualClock) -> None:
    """L-4, L-9: the deadline holds although no request ever ends."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(0)
    first.client.hanging = True
    await virtual.advance(9.9)
    assert first.working
    await virtual.advance(0.2)
    assert not first.working
    with pytest.raises(LeaseLost):
        await first.task


async def test_l8_l9_k11_short_trouble_does_not_lose_the_lease(api: LeaseServer, virtual: VirtualClock) -> None:
    first = Candidate(api, virtual, "a", lease_name="short-trouble")
    await virtual.advance(1)
    first.client.cut = True
    await virtual.advance(6)
    first.client.cut = False
    await virtual.advance(20)
    assert first.working
    assert value_of("leader_election_master_status", {"name": "short-trouble"}) == 1
    slow = value_of("leader_election_slowpath_total", {"name": "short-trouble"})
    assert slow == 3
    await end(first)
    assert value_of("leader_election_master_status", {"name": "short-trouble"}) == 0


async def test_l6_l8_write_of_another_to_the_lease_only_slows_a_renewal(
    api: LeaseServer, virtual: VirtualClock
) -> None:
    """L-6, L-8: a label on the lease makes the cached version stale, no more."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    assert api.lease is not None
    api.write({**api.lease, "metadata": {**api.lease["metadata"], "labels": {"x": "y"}}})
    await virtual.advance(10)
    assert first.working
    assert api.lease["metadata"]["labels"] == {"x": "y"}
    await end(first)


async def test_l10_stolen_lease_ends_the_work_at_once(api: LeaseServer, virtual: VirtualClock) -> None:
    """L-10: nothing to wait for when another holder is seen."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    assert api.lease is not None
    api.write({**api.lease, "spec": {**api.lease["spec"], "holderIdentity": "z"}})
    await virtual.advance(2)
    assert not first.working
    with pytest.raises(LeaseLost):
        await first.task
    assert api.spec["holderIdentity"] == "z"


async def test_l5_times_in_the_lease_are_not_believed(api: LeaseServer, virtual: VirtualClock) -> None:
    """L-5: a holder whose clock is years behind keeps its lease for a full duration from when we first saw it."""
    spec = {"holderIdentity": "z", "leaseDurationSeconds": 15, "renewTime": "1999-01-01T00:00:00.000000Z"}
    api.write({"metadata": {"name": "lease", "namespace": "ns"}, "spec": spec})
    candidate = Candidate(api, virtual, "a")
    await virtual.advance(14.9)
    assert not candidate.working
    await virtual.advance(2.2)
    assert candidate.working
    await end(candidate)


async def test_l11_failure_of_the_work_is_raised_and_the_lease_released(
    api: LeaseServer, virtual: VirtualClock
) -> None:
    async def fail() -> None:
        raise ValueError("bug in the work")

    elector = LeaderElector(
        LeaseClient(api), lease_namespace="ns", lease_name="lease", identity="a", clock=virtual, random=lambda: 0.0
    )
    with pytest.raises(ValueError, match="bug in the work"):
        await elector.run(fail)
    assert api.spec["holderIdentity"] == ""


async def test_l12_candidate_that_gives_up_waiting_leaves_no_trace(api: LeaseServer, virtual: VirtualClock) -> None:
    first, second = Candidate(api, virtual, "a"), Candidate(api, virtual, "b")
    await virtual.advance(5)
    await end(second)
    assert api.spec["holderIdentity"] == "a"
    assert first.working
    await end(first)


async def test_l1_odd_lease_is_taken_for_free(api: LeaseServer, virtual: VirtualClock) -> None:
    """A lease that somebody created by hand, without a spec."""
    api.write({"metadata": {"name": "lease", "namespace": "ns"}})
    candidate = Candidate(api, virtual, "a")
    await virtual.advance(0)
    assert candidate.working
    await end(candidate)


async def test_l13_health_follows_the_renewals(api: LeaseServer, virtual: VirtualClock) -> None:
    """L-13"""
    candidate = Candidate(api, virtual, "a")
    assert candidate.elector.is_healthy()
    await virtual.advance(100)
    assert candidate.elector.is_healthy()
    virtual.step(36)
    assert not candidate.elector.is_healthy()
    await end(candidate)


@pytest.mark.parametrize(("lease", "renew", "retry"), [(10, 10, 2), (15, 2, 2), (15, 10, 0)])
def test_l2_impossible_durations_are_refused(api: LeaseServer, lease: float, renew: float, retry: float) -> None:
    """L-2"""
    with pytest.raises(ValueError, match="lease_duration > renew_deadline"):
        LeaderElector(
            LeaseClient(api),
            lease_namespace="ns",
            lease_name="lease",
            identity="a",
            lease_duration=lease,
            renew_deadline=renew,
            retry_period=retry,
        )


def test_l3_every_process_is_another_candidate() -> None:
    first, second = new_identity(), new_identity()
    assert first != second
    assert first.rpartition("_")[0] == second.rpartition("_")[0] == socket.gethostname()


async def test_l7_candidates_drift_apart(api: LeaseServer, virtual: VirtualClock) -> None:
    """Tries are 2 s apart, and up to 2.4 s more."""
    api.write({"metadata": {"name": "lease", "namespace": "ns"}, "spec": {"holderIdentity": "z"}})
    jitters = iter([0.0, 0.5, 1.0])
    candidate = Candidate(api, virtual, "a", random=lambda: next(jitters))
    tries = []
    for _ in range(100):
        before = len(api.calls)
        await virtual.advance(0.1)
        if len(api.calls) > before:
            tries.append(round(virtual.monotonic(), 1))
    assert tries[:4] == pytest.approx([0.1, 2.0, 5.2, 9.6], abs=0.11)
    await end(candidate)


async def test_l1_vanished_lease_is_written_anew(api: LeaseServer, virtual: VirtualClock) -> None:
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    api.lease = None
    await virtual.advance(3)
    assert first.working
    assert api.spec["holderIdentity"] == "a"
    await end(first)


async def test_l1_vanished_lease_that_another_took_is_lost(api: LeaseServer, virtual: VirtualClock) -> None:
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    api.write({"metadata": {"name": "lease", "namespace": "ns"}, "spec": {"holderIdentity": "z"}})
    await virtual.advance(2)
    with pytest.raises(LeaseLost):
        await first.task
    assert api.spec["holderIdentity"] == "z"


@pytest.mark.parametrize("duration", ["soon", None, 0, -5, True])
async def test_l1_l5_malformed_lease_of_another_lasts_as_long_as_ours(
    api: LeaseServer, virtual: VirtualClock, duration: object
) -> None:
    spec = {"holderIdentity": "z", "leaseDurationSeconds": duration, "leaseTransitions": "many"}
    api.write({"metadata": {"name": "lease", "namespace": "ns"}, "spec": spec})
    candidate = Candidate(api, virtual, "a")
    await virtual.advance(14)
    assert not candidate.working
    await virtual.advance(4)
    assert candidate.working
    assert api.spec["leaseTransitions"] == 1
    await end(candidate)


async def test_l5_duration_of_another_holder_is_believed(api: LeaseServer, virtual: VirtualClock) -> None:
    spec = {"holderIdentity": "z", "leaseDurationSeconds": 60}
    api.write({"metadata": {"name": "lease", "namespace": "ns"}, "spec": spec})
    candidate = Candidate(api, virtual, "a")
    await virtual.advance(59)
    assert not candidate.working
    await virtual.advance(4)
    assert candidate.working
    await end(candidate)


async def test_l1_what_others_wrote_into_the_lease_stays(api: LeaseServer, virtual: VirtualClock) -> None:
    spec = {"holderIdentity": "", "strategy": "OldestEmulationVersion", "leaseTransitions": 4}
    api.write({"metadata": {"name": "lease", "namespace": "ns", "labels": {"x": "y"}}, "spec": spec})
    candidate = Candidate(api, virtual, "a", lease_duration=15.5)
    await virtual.advance(0)
    assert candidate.working
    assert api.lease is not None
    assert api.lease["metadata"]["labels"] == {"x": "y"}
    assert api.spec["strategy"] == "OldestEmulationVersion"
    assert api.spec["leaseTransitions"] == 5
    assert api.spec["leaseDurationSeconds"] == 16, "others must not wait for less than we rely on"
    await end(candidate)


async def test_l11_candidate_that_is_stopped_while_it_takes_the_lease_gives_it_back(
    api: LeaseServer, virtual: VirtualClock
) -> None:
    """The write arrived, its answer did not; nobody would lead for a whole lease."""
    candidate = Candidate(api, virtual, "a")
    candidate.client.deaf = True
    await virtual.advance(0)
    assert api.spec["holderIdentity"] == "a"
    assert not candidate.working
    candidate.client.deaf = False
    candidate.task.cancel()
    await virtual.advance(0)
    assert candidate.task.cancelled()
    assert api.spec["holderIdentity"] == ""


async def test_l11_release_is_retried_on_conflict_and_on_trouble(api: LeaseServer, virtual: VirtualClock) -> None:
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    first.client.cut = True
    first.release.set()
    await virtual.advance(5)
    assert api.spec["holderIdentity"] == "a"
    first.client.cut = False
    await virtual.advance(1)
    assert first.task.done()
    assert api.spec["holderIdentity"] == ""
    conflicting = Candidate(api, virtual, "b")
    await virtual.advance(1)
    original, refusals = conflicting.client.update, iter([True, True, False])

    async def update(resource: Resource, obj: JsonObject) -> JsonObject:
        if next(refusals):
            raise Conflict(status=409)
        return await original(resource, obj)

    conflicting.client.update = update  # type: ignore[method-assign] # the test plays a server that is busy
    conflicting.release.set()
    await virtual.advance(2)
    assert conflicting.task.done()
    assert api.spec["holderIdentity"] == ""


async def test_l11_release_is_given_up_after_the_renew_deadline(api: LeaseServer, virtual: VirtualClock) -> None:
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    first.client.hanging = True
    first.release.set()
    await virtual.advance(9.9)
    assert not first.task.done()
    await virtual.advance(0.2)
    assert first.task.done()


async def test_l12_every_end_is_the_same_end(api: LeaseServer, virtual: VirtualClock) -> None:
    """Whether it led or not, nothing of an elector is left when `run` has ended."""
    before = asyncio.all_tasks()
    leader, candidate, lost = (Candidate(api, virtual, name, lease_name="ends") for name in "abc")
    await virtual.advance(1)
    await end(candidate)
    await end(leader)
    await virtual.advance(5)
    assert lost.working
    lost.client.cut = True
    await virtual.advance(20)
    assert asyncio.all_tasks() == before
    assert value_of("leader_election_master_status", {"name": "ends"}) == 0


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_missing_permission_is_named_and_not_repeated_all_the_time(
    api: LeaseServer, virtual: VirtualClock, verb: str
) -> None:
    with capture_logs() as logged:
        candidate = Candidate(api, virtual, "a")
        candidate.client.forbidden = {verb}
        await virtual.advance(299)
        said = [entry["event"] for entry in logged if entry["log_level"] == "error"]
        (complaint,) = said
        assert f"may not {verb} the lease" in complaint
        assert "grant it the verbs get, create and update on leases.coordination.k8s.io in namespace ns" in complaint
        await virtual.advance(10)
        assert sum(entry["log_level"] == "error" for entry in logged) == 2
        candidate.client.forbidden = set()
        await virtual.advance(5)
    assert candidate.working
    await end(candidate)


async def test_a_candidate_that_cannot_read_the_lease_warns_and_goes_on(
    api: LeaseServer, virtual: VirtualClock
) -> None:
    """It mends by itself, so it is no error; a line for each try would bury what else there is."""
    with capture_logs() as logged:
        candidate = Candidate(api, virtual, "a")
        candidate.client.cut = True
        await virtual.advance(299)
        assert [entry["event"] for entry in logged if entry["log_level"] in {"warning", "error"}] == [
            "lease cannot be read or taken, trying again"
        ]
        assert not any(entry["log_level"] == "error" for entry in logged)
        candidate.client.cut = False
        await virtual.advance(5)
    assert candidate.working
    await end(candidate)


async def test_l14_guard_lets_nothing_pass_without_the_lease(api: LeaseServer, virtual: VirtualClock) -> None:
    candidate = Candidate(api, virtual, "a")
    with pytest.raises(NotLeading, match="does not hold the lease ns/lease"):
        candidate.elector.guard()
    await virtual.advance(30)
    candidate.elector.guard()
    await end(candidate)
    with pytest.raises(NotLeading):
        candidate.elector.guard()


async def test_l14_guard_holds_after_a_pause_before_anything_else_has_noticed(
    api: LeaseServer, virtual: VirtualClock
) -> None:
    """L-9, L-10: the process was stopped, and the first thing that runs again is a write."""
    candidate = Candidate(api, virtual, "a")
    await virtual.advance(1)
    virtual._elapsed += 3600  # time has passed, and no timer was served
    with capture_logs() as logged:
        with pytest.raises(NotLeading, match="not renewed in time"):
            candidate.elector.guard()
        with pytest.raises(LeaseLost):
            await candidate.task
    assert not candidate.working
    assert [entry["event"].partition(":")[0] for entry in logged if entry["log_level"] == "error"] == ["lease lost"]


async def test_l10_work_that_does_not_stop_is_told_of_before_the_lease_expires(
    api: LeaseServer, virtual: VirtualClock
) -> None:
    told: list[float] = []
    candidate = Candidate(api, virtual, "a", on_overrun=lambda: told.append(virtual.monotonic()))
    candidate.stopping_takes = 1000
    await virtual.advance(0)
    candidate.client.cut = True
    await virtual.advance(20)
    assert told == [pytest.approx(14.5)]
    assert candidate.task.done()
    with pytest.raises(LeaseLost):
        candidate.task.result()
    await virtual.advance(1000)
