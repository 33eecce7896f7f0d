"""The guard: no write starts without the lease."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs
from support.leases import Candidate, LeaseServer, end
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.leaderelection.elector import LeaseLost
from trainmaster.controller.kube.rest.errors import NotLeading

pytestmark = pytest.mark.usefixtures("debugged")


@pytest.mark.guarantee("L-14")
async def test_guard_lets_nothing_pass_without_the_lease(api: LeaseServer, virtual: VirtualClock) -> None:
    candidate = Candidate(api, virtual, "a")
    with pytest.raises(NotLeading, match="does not hold the lease ns/lease"):
        candidate.elector.guard()
    await virtual.advance(30)
    candidate.elector.guard()
    await end(candidate)
    with pytest.raises(NotLeading):
        candidate.elector.guard()


@pytest.mark.guarantee("L-14")
async def test_guard_holds_after_a_pause_before_anything_else_has_noticed(
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
