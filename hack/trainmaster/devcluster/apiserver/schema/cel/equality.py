"""Equality: when Kubernetes takes two values of a field for equal, and which elements of two lists are the same one.

The order of lists of type map and set does not matter. Elements of a list of type map are told apart by their keys.
"""

from __future__ import annotations

from typing import Any

from trainmaster.runtime.jsontree import JsonObject


def key_of(item: Any, schema: JsonObject) -> str:
    """Return what identifies an item of a list of type map."""
    if not isinstance(item, dict):
        return repr(item)
    return repr([item.get(key) for key in schema.get("x-kubernetes-list-map-keys", ())])


def by_key(items: list[Any], schema: JsonObject) -> dict[str, Any]:
    """Return the items of a list of type map by what identifies them."""
    return {key_of(item, schema): item for item in items}


def is_equal(new: Any, old: Any, schema: Any) -> bool:
    """Compare two values of a field."""
    if new is old or new == old:
        return True
    if not isinstance(schema, dict):
        return False
    if isinstance(new, dict) and isinstance(old, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        return new.keys() == old.keys() and all(
            is_equal(value, old[name], properties.get(name, others)) for name, value in new.items()
        )
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        items = schema.get("items")
        match schema.get("x-kubernetes-list-type"):
            case "map":
                before = by_key(old, schema)
                return all(
                    (key := key_of(item, schema)) in before and is_equal(item, before[key], items) for item in new
                )
            case "set":
                return sorted(map(repr, new)) == sorted(map(repr, old))
            case _:
                return all(is_equal(ours, theirs, items) for ours, theirs in zip(new, old, strict=True))
    return False


def has_unordered(schema: Any) -> bool:
    """Return whether there are lists in a value whose order does not matter."""
    if not isinstance(schema, dict):
        return False
    if schema.get("x-kubernetes-list-type") in {"map", "set"}:
        return True
    parts = [*schema.get("properties", {}).values(), schema.get("additionalProperties"), schema.get("items")]
    return any(map(has_unordered, parts))


def align(old: Any, new: Any, schema: Any) -> Any:
    """Return the old value with its lists in the order of the new one, where the order does not matter.

    CEL compares lists element by element; after this it finds those equal that Kubernetes takes for equal.
    """
    if not isinstance(schema, dict):
        return old
    if isinstance(new, dict) and isinstance(old, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        return {
            name: align(value, new[name], properties.get(name, others)) if name in new else value
            for name, value in old.items()
        }
    if not (isinstance(new, list) and isinstance(old, list)):
        return old
    items = schema.get("items")
    match schema.get("x-kubernetes-list-type"):
        case "map":
            wanted = by_key(new, schema)
            known = by_key(old, schema)
            common = [align(known[key], item, items) for key, item in wanted.items() if key in known]
            return common + [item for key, item in known.items() if key not in wanted]
        case "set":
            return [item for item in new if item in old] + [item for item in old if item not in new]
        case _:
            return [align(theirs, ours, items) for theirs, ours in zip(old, new, strict=False)] + old[len(new) :]
