"""Declared types: the part of a schema that rules can see, and the types that it has in them.

- Fields are visible where the schema names them; the keys of a map always are.
- Of the metadata of a whole resource, at the root or embedded, rules see the name and generateName only.
- What the schema leaves untyped (`x-kubernetes-preserve-unknown-fields`) is invisible. An int-or-string is of any type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.devcluster.apiserver.schema.cel import escaping
from trainmaster.runtime.jsontree import JsonObject

_STRING: JsonObject = {"type": "string"}
_OF_RESOURCES: JsonObject = {
    "apiVersion": _STRING,
    "kind": _STRING,
    "metadata": {"type": "object", "properties": {"name": _STRING, "generateName": _STRING}},
}
_FORMATS = {"date": "timestamp", "date-time": "timestamp", "duration": "duration", "byte": "bytes"}
_SCALARS = {"boolean": "bool", "integer": "int", "number": "double", "string": "string"}
SCALAR_TYPES = frozenset({*_FORMATS.values(), *_SCALARS.values()})
"""The types without parts."""


class Undefined(Exception):
    """A rule selects a field that it cannot; `index` says which of the selected names is the wrong one."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


def is_visible(schema: Any) -> bool:
    """Return whether rules can see values of this schema."""
    return isinstance(schema, dict) and (is_int_or_string(schema) or bool(schema.get("type")))


def is_int_or_string(schema: JsonObject) -> bool:
    """Return whether a value is a number or a text; rules find out at run time."""
    return schema.get("x-kubernetes-int-or-string") is True


def fields(schema: JsonObject, *, is_resource: bool = False) -> Mapping[str, JsonObject] | None:
    """Return the schemas of the fields that rules see; None if this is not an object with fields."""
    if schema.get("type") != "object" or is_int_or_string(schema):
        return None
    named = {name: child for name, child in schema.get("properties", {}).items() if is_visible(child)}
    if is_resource or schema.get("x-kubernetes-embedded-resource") is True:
        return named | _OF_RESOURCES
    if not named and isinstance(schema.get("additionalProperties"), dict):
        return None
    return named


def values(schema: JsonObject) -> JsonObject | None:
    """Return the schema of the values of a map; None if this is no map."""
    others = schema.get("additionalProperties")
    return others if isinstance(others, dict) and fields(schema) is None else None


def cel_type(schema: JsonObject) -> str:
    """Return the type that a value has in a rule."""
    if is_int_or_string(schema):
        return "dyn"
    declared = schema.get("type")
    if declared == "string":
        return _FORMATS.get(schema.get("format", ""), "string")
    if declared == "array":
        items: Any = schema.get("items")
        return f"list<{cel_type(items) if is_visible(items) else 'dyn'}>"
    if declared == "object":
        each = values(schema)
        return f"map<string,{cel_type(each) if each is not None and is_visible(each) else 'dyn'}>"
    return _SCALARS.get(str(declared), "dyn")


def follow(schema: JsonObject, names: Sequence[str], *, is_resource: bool) -> list[tuple[str, JsonObject]]:
    """Return the field, as JSON calls it, and the schema behind each selected name; raises Undefined."""
    found: list[tuple[str, JsonObject]] = []
    for index, name in enumerate(names):
        is_whole = is_resource and not index
        known = fields(schema, is_resource=is_whole)
        if known is not None:
            field = escaping.find(name, known)
            if field is None:
                raise Undefined(index, f"undefined field '{name}'")
            schema = known[field]
        elif (each := values(schema)) is not None:
            field, schema = name, each
        else:
            if (kind := cel_type(schema)) == "dyn":
                return found
            raise Undefined(
                index, f"type '{kind.replace('<', '(').replace('>', ')')}' does not support field selection"
            )
        found.append((field, schema))
    return found
