"""A small language for structural schemas (Kubernetes API conventions: CRD v1).

Each function returns one node of an OpenAPI schema; keywords that are not given are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

SUBDOMAIN_LENGTH: Final = 253
"""Longest DNS subdomain (RFC 1123): names of most objects."""


def rule(expression: str, message: str) -> Schema:
    """Return a CEL rule; `expression` sees the value as `self` and the one before an update as `oldSelf`."""
    return {"rule": expression, "message": message}


def immutable(message: str = "field is immutable") -> Schema:
    """Return the rule that a value which is present before and after an update does not change."""
    return rule("self == oldSelf", message)


def string(
    description: str | None = None,
    *,
    default: str | None = None,
    enum: Sequence[str] | None = None,
    format: str | None = None,  # noqa: A002  # named as in OpenAPI
    length: tuple[int, int] | None = None,
    pattern: str | None = None,
    rules: Sequence[Schema] = (),
) -> Schema:
    """Return a string; `length` is (shortest, longest)."""
    shortest, longest = length or (0, None)
    return _node(
        "string",
        description,
        rules,
        default=default,
        enum=list(enum) if enum is not None else None,
        format=format,
        minLength=shortest or None,
        maxLength=longest,
        pattern=pattern,
    )


def name(description: str | None = None, *, rules: Sequence[Schema] = ()) -> Schema:
    """Return a string that has to name something: neither empty nor longer than any object's name."""
    return string(description, length=(1, SUBDOMAIN_LENGTH), rules=rules)


def time(description: str | None = None) -> Schema:
    """Return a point in time (RFC 3339)."""
    return string(description, format="date-time")


def integer(
    description: str | None = None,
    *,
    default: int | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    format: str | None = "int32",  # noqa: A002  # named as in OpenAPI
    rules: Sequence[Schema] = (),
) -> Schema:
    """Return an integer, of 32 bits unless `format` says otherwise."""
    return _node("integer", description, rules, default=default, minimum=minimum, maximum=maximum, format=format)


def integer_or_string(description: str | None = None, *, rules: Sequence[Schema] = ()) -> Schema:
    """Return a value that is either; what it may be beyond that is for rules to say."""
    return {
        **({} if description is None else {"description": description}),
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": True,
        **({"x-kubernetes-validations": list(rules)} if rules else {}),
    }


def boolean(description: str | None = None, *, default: bool | None = None) -> Schema:
    """Return a boolean."""
    return _node("boolean", description, default=default)


def atomic_list(
    items: Schema,
    description: str | None = None,
    *,
    max_items: int | None = None,
    rules: Sequence[Schema] = (),
) -> Schema:
    """Return a list that has one owner: whoever applies it replaces it as a whole."""
    return _list(items, description, rules, "atomic", max_items=max_items)


def set_list(
    items: Schema,
    description: str | None = None,
    *,
    min_items: int | None = None,
    max_items: int | None = None,
    rules: Sequence[Schema] = (),
) -> Schema:
    """Return a list whose elements are owned one by one and occur once."""
    return _list(items, description, rules, "set", min_items=min_items, max_items=max_items)


def map_list(
    items: Schema,
    description: str | None = None,
    *,
    key: str,
    min_items: int | None = None,
    max_items: int | None = None,
    rules: Sequence[Schema] = (),
) -> Schema:
    """Return a list of objects that are told apart by one of their fields."""
    return _list(items, description, rules, "map", keys=[key], min_items=min_items, max_items=max_items)


def plain_list(items: Schema, description: str | None = None) -> Schema:
    """Return a list that does not say how it is merged; where an API was published that way."""
    return _node("array", description, items=items)


def mapping(values: Schema, description: str | None = None) -> Schema:
    """Return an object with any keys."""
    return _node("object", description, additionalProperties=values)


def obj(
    properties: Mapping[str, Schema] | None = None,
    description: str | None = None,
    *,
    required: Sequence[str] = (),
    min_properties: int | None = None,
    rules: Sequence[Schema] = (),
) -> Schema:
    """Return an object with known properties (without any: whatever is in it is dropped by the API server)."""
    return _node(
        "object",
        description,
        rules,
        properties=dict(properties) if properties else None,
        required=sorted(required) or None,
        minProperties=min_properties,
    )


def free_form(description: str | None = None) -> Schema:
    """Return an object in which anything may be: the API server stores it as it comes."""
    return {**_node("object", description), "x-kubernetes-preserve-unknown-fields": True}


def _list(
    items: Schema,
    description: str | None,
    rules: Sequence[Schema],
    list_type: str,
    *,
    keys: list[str] | None = None,
    min_items: int | None = None,
    max_items: int | None = None,
) -> Schema:
    node = _node("array", description, rules, items=items, minItems=min_items, maxItems=max_items)
    node["x-kubernetes-list-type"] = list_type
    if keys:
        node["x-kubernetes-list-map-keys"] = keys
    return node


def _node(kind: str, description: str | None, rules: Sequence[Schema] = (), **keywords: Any) -> Schema:
    node: Schema = {"type": kind}
    if description is not None:
        node["description"] = description
    node.update((keyword, value) for keyword, value in keywords.items() if value is not None)
    if rules:
        node["x-kubernetes-validations"] = list(rules)
    return node
