"""The end of leading: the lease is released when the work has ended, and only then."""

import asyncio

import pytest
from support.leases import Candidate, LeaseServer, end
from support.series import value_of
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.leaderelection.elector import LeaseLost
from trainmaster.controller.kube.rest.errors import Conflict
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.usefixtures("debugged")


@pytest.mark.guarantee("L-11")
async def test_lease_is_released_only_after_the_work_has_ended(api: LeaseServer, virtual: VirtualClock) -> None:
    """And until then it is renewed, however long the work takes to stop."""
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


@pytest.mark.guarantee("L-11")
async def test_lease_of_work_that_does_not_end_is_left_to_expire(api: LeaseServer, virtual: VirtualClock) -> None:
    """A second cancellation gives up waiting for the work, which may still act; nobody may follow at once."""
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


@pytest.mark.guarantee("L-11")
async def test_a_candidate_that_stops_as_it_takes_the_lease_returns_it(api: LeaseServer, virtual: VirtualClock) -> None:
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


@pytest.mark.guarantee("L-11")
async def test_release_is_retried_on_conflict_and_on_trouble(api: LeaseServer, virtual: VirtualClock) -> None:
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


@pytest.mark.guarantee("L-11")
async def test_release_is_given_up_after_the_renew_deadline(api: LeaseServer, virtual: VirtualClock) -> None:
    first = Candidate(api, virtual, "a")
    await virtual.advance(1)
    first.client.hanging = True
    first.release.set()
    await virtual.advance(9.9)
    assert not first.task.done()
    await virtual.advance(0.2)
    assert first.task.done()


@pytest.mark.guarantee("L-12")
async def test_every_end_is_the_same_end(api: LeaseServer, virtual: VirtualClock) -> None:
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
    with pytest.raises(LeaseLost):
        lost.task.result()
    assert asyncio.all_tasks() == before
    assert value_of("leader_election_master_status", {"name": "ends"}) == 0


@pytest.mark.guarantee("L-10")
async def test_work_that_goes_on_is_told_of_before_the_lease_expires(api: LeaseServer, virtual: VirtualClock) -> None:
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
