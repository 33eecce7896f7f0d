"""What stands in a lease: of others, malformed, vanished, written by somebody who does not elect."""

from __future__ import annotations

import pytest
from support.leases import Candidate, LeaseServer, end
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.leaderelection.elector import LeaseLost


@pytest.mark.guarantee("L-6", "L-8")
async def test_write_of_another_to_the_lease_only_slows_a_renewal(api: LeaseServer, virtual: VirtualClock) -> None:
    """A label on the lease makes the cached version stale, no more."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    assert api.lease is not None
    api.write({**api.lease, "metadata": {**api.lease["metadata"], "labels": {"x": "y"}}})
    await virtual.advance(10)
    assert first.working
    assert api.lease["metadata"]["labels"] == {"x": "y"}
    await end(first)


@pytest.mark.guarantee("L-10")
async def test_stolen_lease_ends_the_work_at_once(api: LeaseServer, virtual: VirtualClock) -> None:
    """Nothing to wait for when another holder is seen."""
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    assert api.lease is not None
    api.write({**api.lease, "spec": {**api.lease["spec"], "holderIdentity": "z"}})
    await virtual.advance(2)
    assert not first.working
    with pytest.raises(LeaseLost):
        await first.task
    assert api.spec["holderIdentity"] == "z"


@pytest.mark.guarantee("L-1")
async def test_odd_lease_is_taken_for_free(api: LeaseServer, virtual: VirtualClock) -> None:
    """A lease that somebody created by hand, without a spec."""
    api.write({"metadata": {"name": "lease", "namespace": "ns"}})
    candidate = Candidate(api, virtual, "a")
    await virtual.advance(0)
    assert candidate.working
    await end(candidate)


@pytest.mark.guarantee("L-1")
async def test_vanished_lease_is_written_anew(api: LeaseServer, virtual: VirtualClock) -> None:
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    api.lease = None
    await virtual.advance(3)
    assert first.working
    assert api.spec["holderIdentity"] == "a"
    await end(first)


@pytest.mark.guarantee("L-1")
async def test_vanished_lease_that_another_took_is_lost(api: LeaseServer, virtual: VirtualClock) -> None:
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    api.write({"metadata": {"name": "lease", "namespace": "ns"}, "spec": {"holderIdentity": "z"}})
    await virtual.advance(2)
    with pytest.raises(LeaseLost):
        await first.task
    assert api.spec["holderIdentity"] == "z"


@pytest.mark.guarantee("L-1")
async def test_what_others_wrote_into_the_lease_stays(api: LeaseServer, virtual: VirtualClock) -> None:
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


@pytest.mark.guarantee("L-1", "L-5")
@pytest.mark.parametrize(
    ("stated", "lasts"), [(15, 15), (60, 60), ("soon", 15), (None, 15), (0, 15), (-5, 15), (True, 15)]
)
async def test_a_lease_of_another_lasts_as_long_as_it_says_or_as_ours(
    api: LeaseServer, virtual: VirtualClock, stated: object, lasts: float
) -> None:
    """From when we first saw it, since the clock of its holder may be years behind."""
    spec = {"holderIdentity": "z", "leaseDurationSeconds": stated, "leaseTransitions": "many"}
    spec["renewTime"] = "1999-01-01T00:00:00.000000Z"
    api.write({"metadata": {"name": "lease", "namespace": "ns"}, "spec": spec})
    candidate = Candidate(api, virtual, "a")
    await virtual.advance(lasts - 0.1)
    assert not candidate.working
    await virtual.advance(2.2)
    assert candidate.working
    assert api.spec["leaseTransitions"] == 1
    await end(candidate)
