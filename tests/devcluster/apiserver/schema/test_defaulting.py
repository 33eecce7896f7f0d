"""Defaulting: absent fields get their defaults; given ones are left alone."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.devcluster.apiserver.schema import Schema


def defaulted(node: dict[str, Any], obj: dict[str, Any]) -> dict[str, Any]:
    Schema.compile(node).default(obj)
    return obj


def with_properties(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_absent_fields_get_defaults_and_given_ones_stay() -> None:
    node = with_properties(a={"type": "string", "default": "x"}, b={"type": "boolean", "default": True})
    assert defaulted(node, {"b": False}) == {"a": "x", "b": False}


def test_an_absent_object_is_not_created_for_the_defaults_inside_it() -> None:
    node = with_properties(outer=with_properties(a={"type": "string", "default": "x"}))
    assert defaulted(node, {}) == {}
    assert defaulted(node, {"outer": {}}) == {"outer": {"a": "x"}}


def test_the_default_of_an_object_is_defaulted_in_turn() -> None:
    inner = {**with_properties(a={"type": "string", "default": "x"}), "default": {}}
    assert defaulted(with_properties(outer=inner), {}) == {"outer": {"a": "x"}}


def test_null_is_dropped_unless_nullable_and_then_defaulted() -> None:
    """The Kubernetes documentation's own example of null handling."""
    node = with_properties(
        foo={"type": "string", "default": "default"},
        bar={"type": "string", "nullable": True, "default": "unused"},
        baz={"type": "string"},
    )
    assert defaulted(node, {"foo": None, "bar": None, "baz": None}) == {"foo": "default", "bar": None}


def test_elements_of_lists_and_values_of_maps_are_defaulted() -> None:
    port = with_properties(protocol={"type": "string", "default": "TCP"})
    node = with_properties(
        ports={"type": "array", "items": port}, named={"type": "object", "additionalProperties": port}
    )
    obj = {"ports": [{}, {"protocol": "UDP"}], "named": {"a": {}}}
    expected = {"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}], "named": {"a": {"protocol": "TCP"}}}
    assert defaulted(node, obj) == expected


def test_defaults_are_copied_into_each_object() -> None:
    schema = Schema.compile(with_properties(labels={"type": "object", "default": {"a": "b"}}))
    one: dict[str, Any] = {}
    schema.default(one)
    one["labels"]["a"] = "changed"
    other: dict[str, Any] = {}
    schema.default(other)
    assert other == {"labels": {"a": "b"}}


def test_nulls_in_arbitrary_json_stay() -> None:
    node = with_properties(open={"x-kubernetes-preserve-unknown-fields": True})
    assert defaulted(node, {"open": {"a": None}}) == {"open": {"a": None}}


NODE = with_properties(
    a={"type": "string", "default": "x"},
    b={**with_properties(c={"type": "integer", "default": 1}), "default": {}},
    d={"type": "array", "items": with_properties(e={"type": "string", "default": "y"})},
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | st.text(),
        "b": st.none() | st.fixed_dictionaries({}, optional={"c": st.none() | st.integers()}),
        "d": st.lists(st.fixed_dictionaries({}, optional={"e": st.none() | st.text()})),
    },
)


@given(OBJECTS)
def test_defaulting_twice_changes_nothing_more(obj: dict[str, Any]) -> None:
    once = defaulted(NODE, obj)
    before = repr(once)
    assert repr(defaulted(NODE, once)) == before
