"""Conditions of jobs: their order, which is what `kubectl get` shows, and what excludes what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.runtime.jobs.conditions import Conditions
from trainmaster.runtime.jobs.constants import CREATED, FAILED, RESTARTING, RUNNING, SUCCEEDED, SUSPENDED

FIRST, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def conditions_after(*steps: str | tuple[str, str]) -> Conditions:
    """Set conditions one after the other, each True or as the step says."""
    conditions = Conditions([], FIRST)
    for step in steps:
        name, status = (step, "True") if isinstance(step, str) else step
        conditions.set(name, f"Job{name}{status}", f"is {name}", status=status)
    return conditions


def shown(conditions: Conditions) -> list[tuple[str, str]]:
    return [(each["type"], each["status"]) for each in conditions.to_json()]


def test_running_and_restarting_exclude_each_other() -> None:
    assert shown(conditions_after(CREATED, RUNNING, RESTARTING)) == [(CREATED, "True"), (RESTARTING, "True")]
    assert shown(conditions_after(CREATED, RESTARTING, RUNNING)) == [(CREATED, "True"), (RUNNING, "True")]


def test_an_end_turns_running_to_false_and_leaves_its_words() -> None:
    for end in (SUCCEEDED, FAILED):
        conditions = conditions_after(CREATED, RUNNING, end)
        assert shown(conditions) == [(CREATED, "True"), (RUNNING, "False"), (end, "True")]
        running = conditions.get(RUNNING)
        assert running is not None
        assert running["message"] == "is Running"


def test_after_failed_nothing_is_added_or_changed() -> None:
    conditions = conditions_after(CREATED, FAILED)
    before = conditions.to_json()
    assert not conditions.set(RUNNING, "JobRunning", "runs")
    assert conditions.to_json() == before


def test_the_same_again_changes_neither_words_nor_times() -> None:
    conditions = Conditions(conditions_after(CREATED).to_json(), LATER)
    assert not conditions.set(CREATED, "JobCreatedTrue", "in other words")
    (created,) = conditions.to_json()
    assert (created["message"], created["lastUpdateTime"]) == ("is Created", FIRST)


def test_a_new_reason_is_an_update_and_no_transition() -> None:
    conditions = Conditions(conditions_after(CREATED).to_json(), LATER)
    assert conditions.set(CREATED, "AnotherReason", "again")
    (created,) = conditions.to_json()
    assert (created["lastUpdateTime"], created["lastTransitionTime"]) == (LATER, FIRST)


@pytest.mark.defect("V1-B28")
def test_what_does_not_hold_is_never_the_state() -> None:
    conditions = conditions_after(CREATED, SUSPENDED, (SUSPENDED, "False"))
    assert shown(conditions) == [(SUSPENDED, "False"), (CREATED, "True")]
    again = Conditions(conditions.to_json(), LATER)
    again.set(RUNNING, "JobRunning", "runs")
    assert shown(again) == [(CREATED, "True"), (SUSPENDED, "False"), (RUNNING, "True")]


def test_put_takes_new_words_and_leaves_the_same_ones_alone() -> None:
    conditions = conditions_after(CREATED)
    conditions.put("Blocked", "NameTaken", "one")
    stored = conditions.to_json()
    later = Conditions(stored, LATER)
    later.put("Blocked", "NameTaken", "one")
    assert later.to_json() == stored
    later.put("Blocked", "NameTaken", "another")
    assert later.to_json()[-1]["message"] == "another"
    later.remove("Blocked")
    assert shown(later) == [(CREATED, "True")]


STEP = st.tuples(st.sampled_from([RUNNING, RESTARTING, SUCCEEDED, SUSPENDED, FAILED]), st.booleans())


@given(st.lists(STEP, max_size=12))
def test_types_are_unique_and_what_is_stored_is_read_again_as_it_was(steps: list[tuple[str, bool]]) -> None:
    conditions = conditions_after(CREATED, *((name, str(holds)) for name, holds in steps))
    stored = conditions.to_json()
    assert len({each["type"] for each in stored}) == len(stored)
    assert Conditions(stored, LATER).to_json() == stored
    assert stored[-1]["status"] == "True"
