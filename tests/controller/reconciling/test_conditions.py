"""Conditions, as metav1.Condition has them."""

from __future__ import annotations

import pytest

from trainmaster.controller.reconciling.conditions import find_condition, is_true, remove_condition, set_condition
from trainmaster.runtime.jsontree import JsonObject

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


def condition(status: str, *, reason: str = "R", kind: str = "Ready") -> JsonObject:
    return {"type": kind, "status": status, "reason": reason, "message": ""}


@pytest.mark.guarantee("F-4")
def test_the_time_of_a_condition_moves_only_when_its_status_flips() -> None:
    conditions: list[JsonObject] = []
    set_condition(conditions, condition("True"), now=EARLIER)
    set_condition(conditions, condition("True", reason="Other"), now=NOW)
    assert conditions == [{**condition("True", reason="Other"), "lastTransitionTime": EARLIER}]
    set_condition(conditions, condition("False"), now=NOW)
    assert conditions == [{**condition("False"), "lastTransitionTime": NOW}]


@pytest.mark.guarantee("F-4")
def test_there_is_one_condition_of_a_type_and_the_order_stays() -> None:
    conditions: list[JsonObject] = []
    for kind in ("A", "B", "A"):
        set_condition(conditions, condition("True", kind=kind), now=NOW)
    assert [found["type"] for found in conditions] == ["A", "B"]
    remove_condition(conditions, "A")
    assert find_condition(conditions, "A") is None
    assert is_true(conditions, "B")
