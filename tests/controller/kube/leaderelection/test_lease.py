"""What stands in a lease of others, and what that of another installation tells."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from support.leases import Candidate, LeaseServer, end
from support.virtualtime import VirtualClock

from trainmaster.controller.kube.leaderelection.elector import LeaseLost
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.manager.other_leaders import LOOK_EVERY, SECOND_LOOK, OtherLeaders
from trainmaster.runtime.jsontree import JsonObject


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


class Leases:
    """The leases of a cluster, by namespace."""

    def __init__(self) -> None:
        self.held: dict[str, JsonObject] = {}
        self.selectors: list[str | None] = []
        self.failure: KubeError | None = None

    def renew(self, namespace: str, holder: str, at: str) -> None:
        self.held[namespace] = {"holderIdentity": holder, "renewTime": at}

    async def list(
        self, resource: Resource, namespace: str | None, *, field_selector: str | None, limit: int | None
    ) -> JsonObject:
        assert (resource.name, namespace, limit) == ("leases.coordination.k8s.io", None, 100)
        self.selectors.append(field_selector)
        if self.failure is not None:
            raise self.failure
        return {"items": [{"metadata": {"namespace": each}, "spec": spec} for each, spec in self.held.items()]}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def leases() -> Leases:
    leases = Leases()
    leases.renew("kubeflow", "us", "1")
    return leases


@pytest.fixture
async def told(leases: Leases, clock: VirtualClock) -> AsyncIterator[list[Any]]:
    """What is told while somebody looks."""
    looking = OtherLeaders(cast("KubeClient", leases), namespace="kubeflow", name="trainer.kubeflow.org", clock=clock)
    with capture_logs() as logs:
        task = asyncio.create_task(looking.run())
        yield logs
        task.cancel()
        await asyncio.wait({task})


def errors(told: list[Any]) -> list[list[str]]:
    return [each["leases"] for each in told if each["log_level"] == "error"]


async def test_a_lease_that_is_renewed_in_another_namespace_is_told_of_once(
    leases: Leases, told: list[Any], clock: VirtualClock
) -> None:
    leases.renew("kubeflow-system", "the Go manager", "1")
    await clock.advance(SECOND_LOOK)
    assert errors(told) == []
    leases.renew("kubeflow", "us", "2")
    leases.renew("kubeflow-system", "the Go manager", "2")
    await clock.advance(LOOK_EVERY)
    assert errors(told) == [["kubeflow-system/trainer.kubeflow.org by the Go manager"]]
    for number in range(3, 20):
        leases.renew("kubeflow-system", "the Go manager", str(number))
        await clock.advance(LOOK_EVERY)
    assert len(errors(told)) == 1
    assert set(leases.selectors) == {"metadata.name=trainer.kubeflow.org"}


async def test_a_lease_that_was_left_behind_is_nobodys(leases: Leases, told: list[Any], clock: VirtualClock) -> None:
    """Clocks differ, so that its age says nothing; one that was released has no holder."""
    leases.renew("old", "gone", "1")
    leases.renew("released", "", "1")
    await clock.advance(SECOND_LOOK)
    leases.renew("released", "", "2")
    await clock.advance(10 * LOOK_EVERY)
    assert errors(told) == []


async def test_one_that_comes_again_is_told_of_again(leases: Leases, told: list[Any], clock: VirtualClock) -> None:
    await clock.advance(SECOND_LOOK)
    for number in range(1, 10):
        if number < 4 or number > 6:
            leases.renew("second", "them", str(number))
        await clock.advance(LOOK_EVERY)
    assert len(errors(told)) == 2


async def test_without_the_right_to_look_nothing_is_told(leases: Leases, told: list[Any], clock: VirtualClock) -> None:
    leases.failure = Forbidden(status=403)
    await clock.advance(10 * LOOK_EVERY)
    assert [each["log_level"] for each in told if each["log_level"] != "debug"] == []
    assert len(leases.selectors) > 5


async def test_many_are_told_of_in_one_short_line(leases: Leases, told: list[Any], clock: VirtualClock) -> None:
    """Whoever may write leases in many namespaces must not fill the log."""
    for at in ("1", "2"):
        for number in range(90):
            leases.renew(f"team-{number}", "x", at)
        await clock.advance(LOOK_EVERY)
    (line,) = errors(told)
    assert len(line) == 5
