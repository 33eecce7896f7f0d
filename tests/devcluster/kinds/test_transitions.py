"""Immutable fields of custom resources."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.kinds.transitions import Transitions

FROZEN: dict[str, Any] = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "frozen"}]}


def schema(**properties: Any) -> Transitions:
    return Transitions({"type": "object", "properties": properties})


@pytest.mark.parametrize("rule", ["self == oldSelf", "self==oldSelf", " self  ==  oldSelf "])
def test_a_changed_value_is_reported(rule: str) -> None:
    transitions = schema(a={"type": "string", "x-kubernetes-validations": [{"rule": rule}]})
    (error,) = transitions.check({"a": "2"}, {"a": "1"})
    assert str(error) == f'a: Invalid value: "2": failed rule: {rule}'
    assert transitions.check({"a": "1"}, {"a": "1"}) == []


def test_fields_may_be_added_and_removed() -> None:
    """A rule with oldSelf needs two values to compare."""
    transitions = schema(a={"type": "string", **FROZEN})
    assert transitions.check({"a": "1"}, {}) == []
    assert transitions.check({}, {"a": "1"}) == []


def test_objects_are_compared_deeply_and_not_printed() -> None:
    transitions = schema(spec={"type": "object", "properties": {"a": {"type": "object", **FROZEN}}})
    (error,) = transitions.check({"spec": {"a": {"b": {"c": 2}}}}, {"spec": {"a": {"b": {"c": 1}}}})
    assert str(error) == "spec.a: Invalid value: frozen"


def test_reason_and_path_of_the_rule_are_used() -> None:
    rule = {"rule": "self == oldSelf", "message": "no", "reason": "FieldValueForbidden", "fieldPath": ".b"}
    transitions = schema(a={"type": "object", "x-kubernetes-validations": [rule]})
    (error,) = transitions.check({"a": {"b": 1}}, {"a": {"b": 2}})
    assert str(error) == "a.b: Forbidden: no"


def test_list_items_correlate_by_key() -> None:
    items = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer", **FROZEN}}}
    jobs = {
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }
    old = {"jobs": [{"name": "a", "size": 1}, {"name": "b", "size": 2}]}
    new = {"jobs": [{"name": "new", "size": 9}, {"name": "b", "size": 3}, {"name": "a", "size": 1}]}
    assert [error.field for error in schema(jobs=jobs).check(new, old)] == ["jobs[1].size"]


def test_nothing_correlates_below_atomic_lists_and_maps() -> None:
    items = {"type": "object", "properties": {"size": {"type": "integer", **FROZEN}}}
    transitions = schema(jobs={"type": "array", "items": items}, box={**items, "x-kubernetes-map-type": "atomic"})
    old = {"jobs": [{"size": 1}], "box": {"size": 1}}
    assert transitions.check({"jobs": [{"size": 2}], "box": {"size": 2}}, old) == []


def test_values_of_maps_correlate_by_name() -> None:
    transitions = schema(sizes={"type": "object", "additionalProperties": {"type": "integer", **FROZEN}})
    errors = transitions.check({"sizes": {"a": 2, "b": 1}}, {"sizes": {"a": 1}})
    assert [error.field for error in errors] == ["sizes[a]"]


@pytest.mark.parametrize(("list_type", "changed"), [("set", False), ("map", False), ("atomic", True)])
def test_the_order_of_sets_and_keyed_lists_does_not_matter(list_type: str, changed: bool) -> None:
    items: list[Any] = ["a", "b"] if list_type == "set" else [{"k": "a"}, {"k": "b"}]
    node = {
        "type": "array",
        "items": {},
        "x-kubernetes-list-type": list_type,
        "x-kubernetes-list-map-keys": ["k"],
        **FROZEN,
    }
    assert bool(schema(a=node).check({"a": items[::-1]}, {"a": items})) is changed


def test_other_rules_are_not_evaluated() -> None:
    rule = {"rule": "self.size() > 3", "message": "too short"}
    assert schema(a={"type": "string", "x-kubernetes-validations": [rule]}).check({"a": "b"}, {"a": "a"}) == []
