"""Candidates for one lease, in virtual time."""

import socket

import pytest
from structlog.testing import capture_logs
from support.leases import Candidate, LeaseClient, LeaseServer, end
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.leaderelection.elector import LeaderElector, LeaseLost, new_identity
from trainmaster.controller.kube.rest.errors import NotLeading


@pytest.mark.guarantee("L-1", "L-8", "L-14")
async def test_first_candidate_leads_and_renews_by_writes_only(api: LeaseServer, virtual: VirtualClock) -> None:
    """One read, then only writes."""
    first = Candidate(api, virtual, "a")
    with pytest.raises(NotLeading, match="does not hold the lease ns/lease"):
        first.elector.guard()
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
    with pytest.raises(NotLeading):
        first.elector.guard()


@pytest.mark.guarantee("L-1", "L-11")
async def test_second_candidate_waits_and_takes_over_after_a_release(api: LeaseServer, virtual: VirtualClock) -> None:
    """A clean stop hands the lease over at once; transitions count holders."""
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


@pytest.mark.guarantee("L-4", "L-9")
async def test_hanging_requests_lose_the_lease_in_time(api: LeaseServer, virtual: VirtualClock) -> None:
    """The deadline holds although no request ever ends."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(0)
    first.client.hanging = True
    await virtual.advance(9.9)
    assert first.working
    await virtual.advance(0.2)
    assert not first.working
    with pytest.raises(LeaseLost):
        await first.task


@pytest.mark.guarantee("L-8", "L-9", "K-11")
async def test_short_trouble_does_not_lose_the_lease(api: LeaseServer, virtual: VirtualClock) -> None:
    first = Candidate(api, virtual, "a", lease_name="short-trouble")
    await virtual.advance(1)
    first.client.cut = True
    await virtual.advance(6)
    first.client.cut = False
    await virtual.advance(20)
    assert first.working
    assert value_of("leader_election_master_status", {"name": "short-trouble"}) == 1
    assert value_of("leader_election_slowpath_total", {"name": "short-trouble"}) == 3
    await end(first)
    assert value_of("leader_election_master_status", {"name": "short-trouble"}) == 0


@pytest.mark.guarantee("L-13")
async def test_health_follows_the_renewals(api: LeaseServer, virtual: VirtualClock) -> None:
    candidate = Candidate(api, virtual, "a")
    assert candidate.elector.is_healthy()
    await virtual.advance(100)
    assert candidate.elector.is_healthy()
    virtual.step(36)
    assert not candidate.elector.is_healthy()
    await end(candidate)


@pytest.mark.guarantee("L-2")
@pytest.mark.parametrize(("lease", "renew", "retry"), [(10, 10, 2), (15, 2, 2), (15, 10, 0)])
def test_impossible_durations_are_refused(api: LeaseServer, lease: float, renew: float, retry: float) -> None:
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


@pytest.mark.guarantee("L-3")
def test_every_process_is_another_candidate() -> None:
    first, second = new_identity(), new_identity()
    assert first != second
    assert first.rpartition("_")[0] == second.rpartition("_")[0] == socket.gethostname()


@pytest.mark.guarantee("L-7")
async def test_candidates_drift_apart(api: LeaseServer, virtual: VirtualClock) -> None:
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


@pytest.mark.parametrize("verb", ["get", "create"])
async def test_missing_permission_is_named_once_in_a_while(api: LeaseServer, virtual: VirtualClock, verb: str) -> None:
    with capture_logs() as logged:
        candidate = Candidate(api, virtual, "a")
        candidate.client.forbidden = {verb}
        await virtual.advance(299)
        (complaint,) = [entry["event"] for entry in logged if entry["log_level"] == "error"]
        assert f"may not {verb} the lease" in complaint
        assert "grant it the verbs get, create and update on leases.coordination.k8s.io in namespace ns" in complaint
        await virtual.advance(10)
        assert sum(entry["log_level"] == "error" for entry in logged) == 2
        candidate.client.forbidden = set()
        await virtual.advance(5)
    assert candidate.working
    await end(candidate)


async def test_a_candidate_without_the_right_to_read_warns_and_goes_on(api: LeaseServer, virtual: VirtualClock) -> None:
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


@pytest.mark.guarantee("L-14")
async def test_guard_holds_after_a_pause_before_anything_else_has_noticed(
    api: LeaseServer, virtual: VirtualClock
) -> None:
    """The process was stopped, and the first thing that runs again is a write."""
    candidate = Candidate(api, virtual, "a")
    await virtual.advance(1)
    virtual.skip(3600)
    with capture_logs() as logged:
        with pytest.raises(NotLeading, match="not renewed in time"):
            candidate.elector.guard()
        with pytest.raises(LeaseLost):
            await candidate.task
    assert not candidate.working
    assert [entry["event"].partition(":")[0] for entry in logged if entry["log_level"] == "error"] == ["lease lost"]
