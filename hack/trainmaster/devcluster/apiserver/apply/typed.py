"""Typed values: how the schema divides a value into fields, and by which path elements the items of a list are known.

`shape` decides for a pair of values (one may be absent) whether they are compared and merged as a map, as a list with
known elements, or as a whole.
"""

from __future__ import annotations

import functools
from typing import Any, Final, Literal, TypeAlias

from trainmaster.devcluster.apiserver.apply.fieldset import key_element, readable, value_element
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.devcluster.apiserver.schema.structural import ABSENT
from trainmaster.runtime.jsontree import JsonObject

Shape: TypeAlias = Literal["map", "list", "leaf"]

UNTRACKED_FIELDS: Final = frozenset({"apiVersion", "kind"})
UNTRACKED_METADATA: Final = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "uid",
        "generation",
        "resourceVersion",
        "managedFields",
        "selfLink",
    }
)
"""What the server sets or what names the object has no manager."""

METADATA: Final = Schema.compile(
    {
        "type": "object",
        "properties": {
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "ownerReferences": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "items": {"type": "object", "x-kubernetes-map-type": "atomic"},
            },
        },
    }
)
"""The schema of metadata, which the schemas of custom resources leave open."""


class ApplyInvalid(ValueError):
    """An applied list whose elements cannot be told apart; `path` says which one, `text` why."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(f"{path}: {text}")
        self.text = text
        self.path = path

    def under(self, element: str) -> ApplyInvalid:
        """Return the same error, seen from one path element further up."""
        return ApplyInvalid(self.text, readable(element) + self.path)


def shape(value: Any, schema: Schema) -> Shape:
    """Return how a value is divided; null and empty values are one field."""
    if isinstance(value, dict):
        return "map" if value and schema.map_type != "atomic" else "leaf"
    if isinstance(value, list):
        return "list" if value and schema.list_type != "atomic" else "leaf"
    return "leaf"


def index(items: list[Any], schema: Schema) -> dict[str, Any]:
    """Return the elements of a set or a keyed list by their path elements; raises `ApplyInvalid` where that fails."""
    indexed: dict[str, Any] = {}
    element_schema = schema.items()
    keys = schema.map_keys
    for position, item in enumerate(items):
        if schema.list_type == "set":
            element = value_element(item)
        elif isinstance(item, dict):
            element = key_element({key: _key_value(item, key, element_schema, position) for key in keys})
        else:
            raise ApplyInvalid(f"element {position}: an object with the keys {', '.join(keys)} was expected")
        if element in indexed:
            raise ApplyInvalid(f"duplicate entries for key {readable(element)}")
        indexed[element] = item
    return indexed


def index_stored(items: list[Any], schema: Schema) -> dict[str, Any] | None:
    """Index the elements of a stored list; None if it predates the schema's rules, it is then compared as a whole."""
    try:
        return index(items, schema)
    except ApplyInvalid:
        return None


def _key_value(item: JsonObject, key: str, schema: Schema, position: int) -> Any:
    value = item.get(key)
    if value is None:
        value = schema.child(key).default_value
        if value is ABSENT:
            text = f"associative list with keys has an element that omits key field {key!r} (and has no default value)"
            raise ApplyInvalid(f"element {position}: {text}")
    return value


@functools.lru_cache(maxsize=256)
def object_schema(schema: Schema) -> Schema:
    """Return the schema of a kind with the metadata that every kind has."""
    properties = {**schema.properties, "metadata": METADATA.raw}
    return Schema.compile({**schema.raw, "properties": properties}, schema.definitions)
