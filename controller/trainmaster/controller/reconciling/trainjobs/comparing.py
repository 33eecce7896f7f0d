"""Comparing: whether an object in the cluster already is what we would apply.

An apply that changes nothing still costs a full request with admission (A-7), so settled objects must be recognised
without one (C-12), also right after a restart, when nobody remembers what was applied. Two questions decide:

- does the observed object contain everything that is desired (the server adds defaults, others add their fields)?
- does our field manager own something in it that is no longer desired, and which an apply would therefore remove (A-2)?
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from trainmaster.runtime.jsontree import JsonObject

_IDENTITY = frozenset({"apiVersion", "kind"})
_UNTRACKED_METADATA = frozenset({"name", "namespace", "uid", "resourceVersion"})
_MERGE_KEYS = ("name", "containerPort", "mountPath", "key", "uid", "type", "ip", "topologyKey", "devicePath")
"""Fields that identify the items of lists in the objects that we write."""


def needs_apply(desired: JsonObject, observed: JsonObject, *, owned_fields: JsonObject | None) -> bool:
    """Tell whether applying `desired` would change `observed`.

    Args:
        desired: The complete object that would be applied.
        observed: The object from the cache.
        owned_fields: What our field manager owns according to the object's managedFields (FieldsV1), if that is known.
    """
    if not contains(observed, desired):
        return True
    return owned_fields is not None and _owns_more(owned_fields, desired)


def contains(observed: Any, desired: Any) -> bool:
    """Tell whether `desired` is a part of `observed`: maps by key, lists of objects by their identifying field."""
    if isinstance(desired, dict):
        return isinstance(observed, dict) and all(
            key in observed and contains(observed[key], value) for key, value in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(observed, list) and _contains_items(observed, desired)
    return bool(observed == desired)


def _contains_items(observed: list[Any], desired: list[Any]) -> bool:
    if len(observed) < len(desired):
        return False
    key = _key_of(desired)
    if key is None:
        return len(observed) == len(desired) and all(map(contains, observed, desired))
    by_key = {item.get(key): item for item in observed if isinstance(item, dict)}
    return all(item[key] in by_key and contains(by_key[item[key]], item) for item in desired)


def _key_of(items: list[Any]) -> str | None:
    if not items or not all(isinstance(item, dict) for item in items):
        return None
    for key in _MERGE_KEYS:
        values = [item[key] for item in items if key in item]
        if len(values) == len(items) == len(set(map(str, values))):
            return key
    return None


def owned_fields_of(obj: JsonObject, manager: str) -> JsonObject | None:
    """Extract what a manager owns by apply, apart from the status; None if it never applied the object."""
    for entry in obj["metadata"].get("managedFields") or []:
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            fields: JsonObject = entry.get("fieldsV1") or {}
            return fields
    return None


def _owns_more(fields: JsonObject, node: Any, path: tuple[str, ...] = ()) -> bool:
    for step, below in fields.items():
        if step == ".":
            continue
        found, child = _follow(step, node)
        if not found:
            return not (path == ("f:metadata",) and step.removeprefix("f:") in _UNTRACKED_METADATA)
        if below and _owns_more(below, child, (*path, step)):
            return True
    return False


def _follow(step: str, node: Any) -> tuple[bool, Any]:
    """Take one FieldsV1 path element down a tree: whether it leads anywhere, and where to."""
    kind, _, rest = step.partition(":")
    if kind == "f":
        return (True, node[rest]) if isinstance(node, dict) and rest in node else (False, None)
    items: Iterable[Any] = node if isinstance(node, list) else ()
    wanted = orjson.loads(rest)
    if kind == "v":
        return wanted in items, None
    # Keys may have been defaulted by the server (a port's protocol), so what the item does not say matches.
    for item in items:
        if isinstance(item, dict) and all(item.get(key, value) == value for key, value in wanted.items()):
            return True, item
    return False, None
