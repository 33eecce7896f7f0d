"""Pruning, defaulting and canonical forms by a structural schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.devcluster.apiserver.schema import Schema, builtin_schema
from trainmaster.devcluster.apiserver.schema.structural_validation import validate_structural
from trainmaster.runtime.jsontree import JsonObject

STRING = {"type": "string"}


def schema(**properties: Any) -> Schema:
    return Schema.compile({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


def test_preserve_unknown_fields_keeps_them_but_prunes_what_is_described_below() -> None:
    inner = {"type": "object", "properties": {"a": STRING}}
    open_map = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"inner": inner}}
    obj = {"spec": {"open": {"free": {"deep": [1]}, "inner": {"a": "x", "b": 1}}}}
    assert schema(open=open_map).prune(obj) == ["spec.open.inner.b"]
    assert obj == {"spec": {"open": {"free": {"deep": [1]}, "inner": {"a": "x"}}}}


def test_maps_keep_their_keys_and_prune_inside_the_values() -> None:
    values = {"type": "object", "properties": {"a": STRING}}
    obj = {"spec": {"map": {"k": {"a": "x", "b": 1}}}}
    assert schema(map={"type": "object", "additionalProperties": values}).prune(obj) == ["spec.map.k.b"]
    assert obj == {"spec": {"map": {"k": {"a": "x"}}}}


def test_an_embedded_resource_keeps_its_type_and_metadata() -> None:
    template = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    obj = {"spec": {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "other": 1}}}
    assert schema(template=template).prune(obj) == ["spec.template.other"]
    assert obj["spec"]["template"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}


def test_an_unknown_definition_is_named() -> None:
    with pytest.raises(ValueError, match=r"'io\.k8s\.Nothing' is not among the definitions"):
        builtin_schema("io.k8s.Nothing")


def test_recursive_definitions_compile() -> None:
    definitions = {"Tree": {"type": "object", "properties": {"left": {"$ref": "#/definitions/Tree"}}}}
    tree = Schema.compile({"$ref": "Tree"}, definitions)
    obj = {"left": {"left": {"x": 1}}}
    assert tree.prune(obj) == ["left.left.x"]


def test_a_definition_that_is_only_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="refers to itself"):
        Schema.compile({"$ref": "Loop"}, {"Loop": {"$ref": "Loop"}})


def defaulted(node: dict[str, Any], obj: dict[str, Any]) -> dict[str, Any]:
    Schema.compile(node).default(obj)
    return obj


def with_properties(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


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


def _pod(resources: JsonObject) -> JsonObject:
    return {"spec": {"containers": [{"name": "a", "resources": resources}]}}


def test_a_wrong_quantity_is_named_by_its_path() -> None:
    with pytest.raises(ValueError, match=r"^spec\.containers\[0\]\.resources\.limits\.cpu: "):
        builtin_schema("io.k8s.api.core.v1.Pod").canonicalize(_pod({"limits": {"cpu": "many"}}))


def test_times_are_in_utc_and_those_of_leases_have_microseconds() -> None:
    lease = {"spec": {"renewTime": "2026-01-01T01:00:00.250000+01:00", "holderIdentity": "2026-01-01T01:00:00Z"}}
    builtin_schema("io.k8s.api.coordination.v1.Lease").canonicalize(lease)
    assert lease["spec"] == {"renewTime": "2026-01-01T00:00:00.250000Z", "holderIdentity": "2026-01-01T01:00:00Z"}
    job: JsonObject = {"status": {"startTime": "2026-01-01T01:00:00.25+01:00"}}
    builtin_schema("io.k8s.api.batch.v1.Job").canonicalize(job)
    assert job["status"]["startTime"] == "2026-01-01T00:00:00Z"


_TEXT: JsonObject = {"type": "string"}


def _problems(field: JsonObject) -> list[str]:
    return [str(each) for each in validate_structural({"type": "object", "properties": {"a": field}}, "schema")]


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({}, "schema.properties[a].type: Required value: must not be empty for specified object fields"),
        ({"type": "array"}, "schema.properties[a].items: Required value: must be specified"),
        (
            {"type": "array", "items": {}},
            "schema.properties[a].items.type: Required value: must not be empty for specified array items",
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}},
            "must not be empty if x-kubernetes-list-type is map",
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": _TEXT}},
            },
            "schema.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list",
        ),
        (
            {"type": "object", "properties": {"b": _TEXT}, "additionalProperties": _TEXT},
            "schema.properties[a].additionalProperties: Forbidden: additionalProperties and properties are",
        ),
    ],
    ids=["untyped", "no-items", "untyped-items", "no-keys", "optional-key", "both-properties"],
)
def test_a_schema_that_is_not_structural(field: JsonObject, problem: str) -> None:
    assert problem in "\n".join(_problems(field))


@pytest.mark.parametrize(
    "field",
    [
        {"x-kubernetes-int-or-string": True},
        {"x-kubernetes-preserve-unknown-fields": True},
        {"type": "object", "additionalProperties": {"type": "array", "items": _TEXT}},
        {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
        {"type": "object", "default": {}, "required": ["b"], "properties": {"b": {"type": "string", "default": "x"}}},
    ],
)
def test_a_schema_that_is_structural(field: JsonObject) -> None:
    assert _problems(field) == []
