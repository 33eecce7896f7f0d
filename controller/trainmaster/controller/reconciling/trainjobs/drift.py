"""Drift: whether an object in the cluster already is what we would apply, and where it is not.

Guarantees:
- C-12, A-7: an apply that changes nothing still costs a full request with admission, so settled objects are recognised
  without one, also right after a restart, when nobody remembers what was applied.
- A-2: an apply that would only remove something is recognised as well.
- A-6: lists of objects are compared by their identifying field, all others as a whole.

Two questions decide:

- does the observed object contain everything that is desired (the server adds defaults, others add their fields)?
- does our field manager own something in it that is no longer desired, and which an apply would therefore remove?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import orjson

from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

Path: TypeAlias = tuple[str, ...]
"""The path of a field, in the elements of FieldsV1: `f:spec`, `k:{"name":"node"}`."""

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
    return owned_fields is not None and any(True for _ in surplus(owned_fields, desired))


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
    for entry in _entries(obj):
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            return _object(entry.get("fieldsV1"))
    return None


def _entries(obj: JsonObject) -> Iterator[JsonObject]:
    """Return the entries of managedFields that are some: clients may write there what they like."""
    entries = obj["metadata"].get("managedFields")
    return filter(_object, entries) if isinstance(entries, list) else iter(())


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _parsed(text: str) -> Any:
    """Read the JSON in a path element; None if it is none."""
    try:
        return load_json(text)
    except JsonError:
        return None


def surplus(fields: JsonObject, desired: Any, path: Path = ()) -> Iterator[Path]:
    """Find the paths in `fields` (FieldsV1) that `desired` does not have."""
    for element, below in _object(fields).items():
        if element == ".":
            continue
        found, child = _follow(element, desired)
        if found:
            if below:
                yield from surplus(below, child, (*path, element))
        elif not (path == ("f:metadata",) and element.removeprefix("f:") in _UNTRACKED_METADATA):
            yield (*path, element)


def differences(observed: Any, desired: Any, path: Path = ()) -> Iterator[Path]:
    """Find the paths at which `observed` does not contain `desired`, as deep down as they have a name."""
    if isinstance(desired, dict) and isinstance(observed, dict):
        for name, value in desired.items():
            if name not in observed:
                yield (*path, f"f:{name}")
            else:
                yield from differences(observed[name], value, (*path, f"f:{name}"))
    elif isinstance(desired, list) and isinstance(observed, list) and (key := _key_of(desired)) is not None:
        by_key = {item.get(key): item for item in observed if isinstance(item, dict)}
        for item in desired:
            element = f"k:{orjson.dumps({key: item[key]}).decode()}"
            if item[key] not in by_key:
                yield (*path, element)
            else:
                yield from differences(by_key[item[key]], item, (*path, element))
    elif not contains(observed, desired):
        yield path


def managers_of(obj: JsonObject, path: Path) -> list[str]:
    """Name the field managers of a path in an object; one that owns all of what is around it counts."""
    found: dict[str, None] = {}
    for entry in _entries(obj):
        fields: JsonObject | None = _object(entry.get("fieldsV1")) or None
        for element in path:
            if not fields:
                break
            fields = _object(fields[element]) if element in fields else _similar_item(fields, element)
        if fields is not None:
            found[str(entry.get("manager"))] = None
    return list(found)


def format_path(path: Path) -> str:
    """Write a path as people do: `spec.replicatedJobs[name=node].replicas`."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            text += "".join(f"[{key}={value}]" for key, value in _object(_parsed(rest)).items())
        else:
            text += f"[{rest}]"
    return text.removeprefix(".")


def _similar_item(fields: JsonObject, element: str) -> JsonObject | None:
    """Find an item of a list by the part of its key that we know; the server adds the rest (a port's protocol)."""
    if not element.startswith("k:"):
        return None
    wanted = _object(_parsed(element[2:]))
    for name, below in fields.items():
        if not name.startswith("k:"):
            continue
        keys = _object(_parsed(name[2:]))
        if all(key in keys and keys[key] == value for key, value in wanted.items()):
            return _object(below)
    return None


def _follow(element: str, node: Any) -> tuple[bool, Any]:
    """Take one FieldsV1 path element down a tree: whether it leads anywhere, and where to."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return (True, node[rest]) if isinstance(node, dict) and rest in node else (False, None)
    items: Iterable[Any] = node if isinstance(node, list) else ()
    wanted = _parsed(rest)
    if kind == "v":
        return wanted in items, None
    if kind != "k" or not isinstance(wanted, dict):
        return False, None
    # Keys may have been defaulted by the server (a port's protocol), so what the item does not say matches.
    for item in items:
        if isinstance(item, dict) and all(item.get(key, value) == value for key, value in wanted.items()):
            return True, item
    return False, None
