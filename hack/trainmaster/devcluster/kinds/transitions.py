"""Rules on the change of an object: fields that a custom resource definition declares immutable.

Only the rule `self == oldSelf` of `x-kubernetes-validations` is evaluated. As every rule that uses oldSelf it is
skipped where there is no old value, so a field may be added later. List items correlate by the keys of a list of type
map; below other lists, and below atomic maps, nothing correlates and the rules there are skipped (KEP-2876).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.devcluster.errors import OMITTED, FieldError, FieldErrorKind
from trainmaster.runtime.jsontree import JsonObject

_IMMUTABLE = "self==oldSelf"
_REASONS: dict[str, FieldErrorKind] = {
    "FieldValueInvalid": "Invalid",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required",
    "FieldValueDuplicate": "Duplicate",
}


@dataclass(frozen=True, slots=True)
class _Rule:
    message: str
    kind: FieldErrorKind
    path: str


@dataclass(frozen=True, slots=True)
class _Node:
    """The part of a schema that leads to immutable fields."""

    schema: JsonObject
    rules: tuple[_Rule, ...] = ()
    properties: Mapping[str, _Node] = field(default_factory=dict)
    values: _Node | None = None
    items: _Node | None = None

    @property
    def matters(self) -> bool:
        return bool(self.rules or self.properties or self.values or self.items)


class Transitions:
    """The compiled rules of one kind; without a schema there are none."""

    def __init__(self, schema: JsonObject | None = None) -> None:
        self._root = _compile(schema or {})

    def check(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """Return a complaint for each immutable field that differs."""
        return list(_check(self._root, new, old, ""))


def _compile(schema: JsonObject) -> _Node:
    rules = tuple(
        _Rule(
            message=rule.get("message") or f"failed rule: {rule['rule']}",
            kind=_REASONS.get(rule.get("reason", ""), "Invalid"),
            path=rule.get("fieldPath", ""),
        )
        for rule in schema.get("x-kubernetes-validations", ())
        if "".join(rule["rule"].split()) == _IMMUTABLE
    )
    properties: dict[str, _Node] = {}
    values = items = None
    if schema.get("x-kubernetes-map-type") != "atomic":
        compiled = {name: _compile(child) for name, child in schema.get("properties", {}).items()}
        properties = {name: node for name, node in compiled.items() if node.matters}
        values = _relevant(schema.get("additionalProperties"))
    if schema.get("x-kubernetes-list-type") == "map":
        items = _relevant(schema.get("items"))
    return _Node(schema, rules, properties, values, items)


def _relevant(schema: Any) -> _Node | None:
    node = _compile(schema) if isinstance(schema, dict) else None
    return node if node is not None and node.matters else None


def _check(node: _Node, new: Any, old: Any, path: str) -> Iterator[FieldError]:
    if node.rules and not _equal(new, old, node.schema):
        value = OMITTED if isinstance(new, dict | list) else new
        for rule in node.rules:
            yield FieldError((path + rule.path).lstrip("."), rule.kind, value, rule.message)
    if isinstance(new, dict) and isinstance(old, dict):
        for name, child in node.properties.items():
            if name in new and name in old:
                yield from _check(child, new[name], old[name], f"{path}.{name}" if path else name)
        if node.values is not None:
            for name in new.keys() & old.keys() - node.properties.keys():
                yield from _check(node.values, new[name], old[name], f"{path}[{name}]")
    elif node.items is not None and isinstance(new, list) and isinstance(old, list):
        before = _by_key(old, node.schema)
        for index, item in enumerate(new):
            key = _key(item, node.schema)
            if key in before:
                yield from _check(node.items, item, before[key], f"{path}[{index}]")


def _key(item: Any, schema: JsonObject) -> str:
    """Return what identifies an item of a list of type map."""
    if not isinstance(item, dict):
        return repr(item)
    return repr([item.get(key) for key in schema.get("x-kubernetes-list-map-keys", ())])


def _by_key(items: list[Any], schema: JsonObject) -> dict[str, Any]:
    return {_key(item, schema): item for item in items}


def _equal(new: Any, old: Any, schema: Any) -> bool:
    """Compare two values as Kubernetes does: the order of lists of type map or set does not matter."""
    if new == old:
        return True
    if not isinstance(schema, dict):
        return False
    if isinstance(new, dict) and isinstance(old, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        return new.keys() == old.keys() and all(
            _equal(value, old[name], properties.get(name, others)) for name, value in new.items()
        )
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        items = schema.get("items")
        match schema.get("x-kubernetes-list-type"):
            case "map":
                before = _by_key(old, schema)
                return all((key := _key(item, schema)) in before and _equal(item, before[key], items) for item in new)
            case "set":
                return sorted(map(repr, new)) == sorted(map(repr, old))
            case _:
                return all(_equal(ours, theirs, items) for ours, theirs in zip(new, old, strict=True))
    return False
