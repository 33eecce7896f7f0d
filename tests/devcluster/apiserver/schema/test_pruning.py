"""Pruning: what a schema does not describe leaves the object, and only that."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.schema import Schema, builtin_schema

STRING = {"type": "string"}


def schema(**properties: Any) -> Schema:
    return Schema.compile({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


def test_unknown_fields_go_and_are_reported_with_sorted_paths() -> None:
    obj = {"spec": {"b": [{"y": 1, "name": "n"}], "known": "k", "bogus": 1}, "also": 2}
    items = {"type": "array", "items": {"type": "object", "properties": {"name": STRING}}}
    assert schema(known=STRING, b=items).prune(obj) == ["also", "spec.b[0].y", "spec.bogus"]
    assert obj == {"spec": {"b": [{"name": "n"}], "known": "k"}}


def test_type_metadata_stay_whatever_the_schema_says() -> None:
    obj = {"apiVersion": "v1", "kind": "X", "metadata": {"anything": 1}}
    assert schema().prune(obj) == []
    assert obj["metadata"] == {"anything": 1}


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


def test_an_object_without_described_fields_keeps_none() -> None:
    obj = {"spec": {"empty": {"a": 1}}}
    assert schema(empty={"type": "object"}).prune(obj) == ["spec.empty.a"]
    assert obj == {"spec": {"empty": {}}}


def test_builtin_definitions_prune_pods() -> None:
    pod = {"kind": "Pod", "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1, "x": 1}]}], "bogus": 1}}
    assert builtin_schema("io.k8s.api.core.v1.Pod").prune(pod) == ["spec.bogus", "spec.containers[0].ports[0].x"]


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
