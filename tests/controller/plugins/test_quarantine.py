"""When a plugin is quarantined, and when it is called again."""

from __future__ import annotations

import pytest

from trainmaster.controller.plugins.quarantine import Quarantine


def failing(
    quarantine: Quarantine, *jobs: str, phase: str = "build", exceeded: bool = False, now: float = 0.0
) -> list[bool]:
    """Let calls fail; tells of each whether it was the one that counted."""
    return [
        quarantine.failed("acme", phase, job, why="KeyError: 'region'", exceeded=exceeded, now=now) is not None
        for job in jobs
    ]


def quarantined() -> Quarantine:
    quarantine = Quarantine(failures=3, period=60.0)
    assert failing(quarantine, "a", "b", "c") == [False, False, True]
    return quarantine


def test_so_many_failures_of_different_trainjobs_in_a_row_quarantine_a_plugin() -> None:
    quarantine = quarantined()
    (found,) = quarantine.list()
    assert (found.plugin, found.phase, found.failures, found.why) == ("acme", "build", 3, "KeyError: 'region'")
    assert quarantine.enter("acme", "build", now=59.9) == found
    assert quarantine.enter("acme", "validate", now=59.9) == found
    assert quarantine.enter("other", "build", now=59.9) is None


def test_what_counts_as_failures_in_a_row() -> None:
    """Whoever always fails in `build` comes through `enforce_ml_policy` before."""
    quarantine = Quarantine(failures=3, period=60.0)
    assert failing(quarantine, *["a"] * 50, *["b"] * 50) == [False] * 100, "one TrainJob counts once"
    quarantine.succeeded("acme", "build")
    assert failing(quarantine, "c", "d") == [False, False], "success in the same phase ends the row"
    quarantine.succeeded("acme", "enforce_ml_policy")
    assert failing(quarantine, "e") == [True], "success in another phase does not"
    quarantine = Quarantine(failures=3, period=60.0)
    assert failing(quarantine, "a", "a", "a", exceeded=True) == [False, False, True], "each limit counts"


def test_after_the_period_one_call_is_let_through_and_success_ends_the_quarantine() -> None:
    quarantine = quarantined()
    assert quarantine.enter("acme", "enforce_ml_policy", now=60.0) is None
    assert not quarantine.succeeded("acme", "enforce_ml_policy")
    assert quarantine.enter("acme", "build", now=60.0) is None
    assert quarantine.enter("acme", "build", now=60.0) is not None  # another job's
    assert quarantine.succeeded("acme", "build")
    assert quarantine.list() == []
    assert quarantine.enter("acme", "build", now=60.0) is None


def test_a_failure_of_that_call_begins_the_quarantine_anew() -> None:
    quarantine = quarantined()
    assert quarantine.enter("acme", "build", now=60.0) is None
    assert failing(quarantine, "z", now=61.0) == [False]  # it is no news
    assert quarantine.enter("acme", "build", now=120.9) is not None
    assert quarantine.enter("acme", "build", now=121.0) is None


def test_a_call_that_began_before_and_succeeds_does_not_end_it() -> None:
    quarantine = quarantined()
    assert not quarantine.succeeded("acme", "build")
    assert quarantine.enter("acme", "build", now=1.0) is not None


def test_while_a_call_does_not_come_back_none_is_let_through() -> None:
    quarantine = quarantined()
    quarantine.gave_up("acme")
    assert quarantine.enter("acme", "build", now=600.0) is not None
    quarantine.came_back("acme")
    assert quarantine.enter("acme", "build", now=600.0) is None


@pytest.mark.parametrize("failures", [1, 2])
def test_the_number_of_failures_is_a_choice(failures: int) -> None:
    quarantine = Quarantine(failures=failures, period=60.0)
    assert failing(quarantine, "a", "b")[:failures] == [False] * (failures - 1) + [True]
