"""What the test bed is worth: defects that are put in on purpose are found."""

from typing import Any

import pytest
from support.sim.faults.plan import Plan
from support.sim.judging import plans, reference, run

from trainmaster.controller.kube.leaderelection.elector import LeaderElector
from trainmaster.controller.kube.rest.errors import KubeError
from trainmaster.controller.reconciling import applier
from trainmaster.controller.reconciling.applier import Applier
from trainmaster.controller.reconciling.status_writer import StatusWriter
from trainmaster.controller.reconciling.trainjobs import decider, status


@pytest.fixture(autouse=True)
def _sound_references() -> None:
    """References are shared by all tests of a process: they come from the controller as it is."""
    for scenario in ("complete", "delete", "fail", "leader", "failover-after-replacement"):
        reference(scenario)


def violations(scenario: str, fault: str) -> str:
    """All that the plans of a scenario with a fault violate."""
    return "\n".join(violation for plan in plans(scenario, fault) for violation in run(plan).violations)


def test_a_child_that_is_built_again_after_its_owner_went_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stale state: the watch of TrainJobs is behind that of JobSets."""

    async def trust(*_: Any) -> None:
        """Take the cache for the truth."""

    monkeypatch.setattr(applier, "check_owner", trust)
    assert "other counts: more {'ADDED" in violations("delete", "late")


def test_a_child_that_is_taken_over_from_an_earlier_trainjob_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader, whose caches are behind each other: without its precondition, a creation is a change."""
    monkeypatch.setattr(applier, "ABSENT", "")
    on = "configmaps+podgroups+jobsets"
    played = run(Plan(scenario="failover-after-replacement", fault="late", on=on, seed=1))
    taken = [violation for violation in played.violations if "was taken over" in violation]
    assert [violation.split(" ")[0] for violation in taken] == ["configmaps", "podgroups", "jobsets"]


def test_a_child_that_a_new_leader_makes_for_a_trainjob_that_is_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader, whose cache of TrainJobs is behind all others."""
    monkeypatch.setattr(Applier, "on_start", lambda _self: None)
    played = run(Plan(scenario="failover-after-replacement", fault="late", on="trainjobs", seed=1))
    assert any("other counts: more {'ADDED" in violation for violation in played.violations)


def test_a_failure_that_is_taken_for_a_success_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intermediate state: whoever takes a failed status write for a done one ends with another status."""
    patch = StatusWriter._patch

    async def careless(self: StatusWriter[Any], key: str, raw: Any, status: Any) -> float | None:
        try:
            return await patch(self, key, raw, status)
        except KubeError:
            return None

    monkeypatch.setattr(StatusWriter, "_patch", careless)
    assert "another end state of trainjobs default/job" in violations("complete", "error")


def test_a_reconcile_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eventual stability: a controller that keeps writing never settles."""
    stamps = iter(range(10**6))
    monkeypatch.setattr(status.Plan, "status", lambda *_, **__: {"jobsStatus": [], "note": next(stamps)})
    assert run(Plan(scenario="fail", fault="no-bookmarks", seed=1)).violations


def test_an_exception_in_a_reconcile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("put in on purpose")

    monkeypatch.setattr(decider, "unsupported_runtime", fail)
    played = run(Plan(scenario="complete", fault="no-bookmarks", seed=1))
    assert any("put in on purpose" in violation for violation in played.violations)


def test_a_leader_that_goes_on_after_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writers: whoever was paused must look at the clock before it writes.

    What it writes then is a creation, which the server would refuse by its precondition as well.
    """
    monkeypatch.setattr(applier, "ABSENT", "")
    monkeypatch.setattr(LeaderElector, "guard", lambda _self: None)
    assert "after its last renewal of the lease" in violations("leader", "pause")
