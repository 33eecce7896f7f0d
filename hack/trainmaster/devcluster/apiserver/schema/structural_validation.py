"""Validation of structural schemas: what Kubernetes demands of the schema of custom resources (KEP-1111).

Every node has a type, so that pruning and defaulting know what they meet; what makes validation expensive or dependent
on other documents is refused; defaults fit their own schema. The errors are those of the API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainmaster.devcluster.apiserver.errors import OMITTED, FieldError, unsupported
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.devcluster.apiserver.schema.formats import compile_pattern
from trainmaster.runtime.jsontree import JsonObject

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_LIST_TYPES = ("atomic", "map", "set")
_MAP_TYPES = ("atomic", "granular")
_SCALARS = ("boolean", "integer", "number", "string")
_REFERENCES = ("$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id", "$schema")


def validate_structural(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield what keeps the schema of a whole object from being structural."""
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    if metadata.keys() - {"type", "properties", "description"} or (
        (metadata.get("properties") or {}).keys() - {"name", "generateName"}
    ):
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield FieldError(f"{path}.properties[metadata]", "Forbidden", detail=detail)
    yield from _node_problems(schema, path, "at the root")


def _node_problems(node: JsonObject, path: str, level: str) -> Iterator[FieldError]:
    for keyword in _REFERENCES:
        if keyword in node:
            yield FieldError(f"{path}.{keyword}", "Forbidden", detail=f"{keyword} is not supported")
    if node.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield FieldError(f"{path}.uniqueItems", "Forbidden", detail=detail)
    yield from _type_problems(node, path, level)
    yield from _list_problems(node, path)
    yield from _value_problems(node, path)
    properties, others = node.get("properties") or {}, node.get("additionalProperties")
    if properties and others not in (None, False):
        detail = "additionalProperties and properties are mutual exclusive"
        yield FieldError(f"{path}.additionalProperties", "Forbidden", detail=detail)
    for name, child in properties.items():
        yield from _node_problems(child, f"{path}.properties[{name}]", "for specified object fields")
    if isinstance(others, dict):
        yield from _node_problems(others, f"{path}.additionalProperties", "for specified object fields")
    if isinstance(node.get("items"), dict):
        yield from _node_problems(node["items"], f"{path}.items", "for specified array items")


def _type_problems(node: JsonObject, path: str, level: str) -> Iterator[FieldError]:
    declared = node.get("type")
    if not declared:
        untyped = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
        if not untyped:
            yield FieldError(f"{path}.type", "Required", detail=f"must not be empty {level}")
    elif declared not in _TYPES:
        yield unsupported(f"{path}.type", declared, _TYPES)
    if declared == "array" and "items" not in node:
        yield FieldError(f"{path}.items", "Required", detail="must be specified")


def _list_problems(node: JsonObject, path: str) -> Iterator[FieldError]:
    list_type, map_type = node.get("x-kubernetes-list-type"), node.get("x-kubernetes-map-type")
    if list_type is not None and list_type not in _LIST_TYPES:
        yield unsupported(f"{path}.x-kubernetes-list-type", list_type, _LIST_TYPES)
    if map_type is not None and map_type not in _MAP_TYPES:
        yield unsupported(f"{path}.x-kubernetes-map-type", map_type, _MAP_TYPES)
    if list_type is not None and node.get("type") != "array":
        detail = "must be array if x-kubernetes-list-type is specified"
        yield FieldError(f"{path}.type", "Invalid", node.get("type", ""), detail)
    given = node.get("items")
    items: JsonObject = given if isinstance(given, dict) else {}
    keys = node.get("x-kubernetes-list-map-keys") or []
    if keys and list_type != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield FieldError(f"{path}.x-kubernetes-list-type", "Invalid", list_type or "", detail)
    if list_type == "map":
        yield from _key_problems(keys, items, path)
    if list_type == "set" and items.get("type") not in _SCALARS:
        atomic = items.get("x-kubernetes-map-type") == "atomic" or items.get("x-kubernetes-list-type") == "atomic"
        if not atomic and not items.get("x-kubernetes-int-or-string"):
            detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
            yield FieldError(f"{path}.items.x-kubernetes-map-type", "Invalid", "", detail)


def _key_problems(keys: list[str], items: JsonObject, path: str) -> Iterator[FieldError]:
    if not keys:
        detail = "must not be empty if x-kubernetes-list-type is map"
        yield FieldError(f"{path}.x-kubernetes-list-map-keys", "Required", detail=detail)
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        if key not in properties:
            detail = "entries must all be names of item properties"
            yield FieldError(f"{path}.x-kubernetes-list-map-keys[{index}]", "Invalid", key, detail)
        elif key not in (items.get("required") or ()) and "default" not in properties[key]:
            detail = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            yield FieldError(f"{path}.items.properties[{key}].default", "Required", detail=detail)


def _value_problems(node: JsonObject, path: str) -> Iterator[FieldError]:
    if pattern := node.get("pattern"):
        try:
            compile_pattern(pattern)
        except re.error as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            yield FieldError(f"{path}.pattern", "Invalid", pattern, detail)
    if "default" in node:
        yield from _default_problems(node, path)


def _default_problems(node: JsonObject, path: str) -> Iterator[FieldError]:
    value: Any = node["default"]
    try:
        schema = Schema.compile(node)
        problems = schema.validate(value, f"{path}.default")
    except (ValueError, TypeError, AttributeError):
        return  # the node itself is broken, which is said elsewhere
    for problem in problems:
        # What is required inside of a default may be defaulted in turn.
        if problem.type != "Required":
            yield FieldError(problem.field or f"{path}.default", "Invalid", OMITTED, problem.detail)
