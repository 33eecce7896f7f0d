"""What Kubernetes demands of the schemas in definitions, with the paths and words of its complaints."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver.schema.structural_validation import validate_structural
from trainmaster.runtime.jsontree import JsonObject

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


def test_a_default_must_fit_its_schema() -> None:
    assert _problems({"type": "integer", "default": "x"})
