"""managedFields: who owns which fields of an object, as the API server keeps it (KEP-555, FieldsV1).

Clients may write there what they like, so whatever has another shape than it should have is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

Path: TypeAlias = tuple[str, ...]
"""The path of a field, in the elements of FieldsV1: `f:spec`, `k:{"name":"node"}`."""

Identity: TypeAlias = tuple[Any, ...]
"""What identifies an item of a list: the values of its keys, or of a set the value itself."""

OWNED_FIELDS: Final = "ownedFields"
"""Where, in the metadata, `strip_managed_fields` keeps what we own of an object: the text of that entry."""


def strip_managed_fields(obj: JsonObject) -> JsonObject:
    """Strip an object that we apply of its managedFields; our own entry stays, as text (`owned_fields`)."""
    metadata = obj["metadata"]
    entry = _our_entry_of(metadata.pop("managedFields", None))
    if entry is not None:
        metadata[OWNED_FIELDS] = entry
    return obj


def owned_fields(obj: JsonObject) -> JsonObject | None:
    """Return what we own by apply of a stripped object, apart from the status; None if we never applied it."""
    text = obj["metadata"].get(OWNED_FIELDS)
    if text is None:
        return None
    # What cannot be read is as before a first apply: the next one brings order.
    return owned_fields_of({"metadata": {"managedFields": [_decoded(text)]}}, FIELD_MANAGER)


def _decoded(text: str) -> Any:
    try:
        return load_json(text)
    except JsonError:
        return None


def _our_entry_of(fields: Any) -> str | None:
    for entry in _entries({"metadata": {"managedFields": fields}}):
        if _is_of(entry, FIELD_MANAGER):
            try:
                return orjson.dumps(entry).decode()
            except orjson.JSONEncodeError:
                return None  # nested more deeply than anybody reads
    return None


def owned_fields_of(obj: JsonObject, manager: str) -> JsonObject | None:
    """Extract what a manager owns by apply, apart from the status; None if it never applied the object."""
    for entry in _entries(obj):
        if _is_of(entry, manager):
            return as_object(entry.get("fieldsV1"))
    return None


def _is_of(entry: JsonObject, manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")


def _entries(obj: JsonObject) -> Iterator[JsonObject]:
    """Return the entries of managedFields that are some: clients may write there what they like."""
    entries = obj["metadata"].get("managedFields")
    return filter(as_object, entries) if isinstance(entries, list) else iter(())


def managers_of(obj: JsonObject, path: Path) -> list[str]:
    """Name the field managers of a path in an object; one that owns all of what is around it counts."""
    found: dict[str, None] = {}
    for entry in _entries(obj):
        fields: JsonObject | None = as_object(entry.get("fieldsV1")) or None
        for element in path:
            if not fields:
                break
            fields = as_object(fields[element]) if element in fields else _similar_item(fields, element)
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
            text += "".join(f"[{key}={value}]" for key, value in as_object(parse_element(element)).items())
        else:
            text += f"[{rest}]"
    return text.removeprefix(".")


def _similar_item(fields: JsonObject, element: str) -> JsonObject | None:
    """Find an item of a list by the part of its key that we know; the server adds the rest (a port's protocol)."""
    if not element.startswith("k:"):
        return None
    wanted = as_object(parse_element(element))
    for name, below in fields.items():
        if not name.startswith("k:"):
            continue
        keys = as_object(parse_element(name))
        if all(key in keys and keys[key] == value for key, value in wanted.items()):
            return as_object(below)
    return None


def parse_element(element: str) -> Any:
    """Read the JSON in a path element that names an item of a list; None if there is none in it."""
    try:
        return load_json(element[2:])
    except JsonError:
        return None


def key_names(elements: Iterable[str]) -> tuple[str, ...] | None:
    """Return the fields that identify the items of a list; None for a set."""
    return next(filter(None, map(_key_names, elements)), None)


@lru_cache(maxsize=4096)
def _key_names(element: str) -> tuple[str, ...] | None:
    keys = parse_element(element) if element.startswith("k:") else None
    return tuple(keys) if isinstance(keys, dict) else None


@lru_cache(maxsize=4096)
def identity_of(element: str) -> Identity | None:
    """Read the identity in a path element; the same few of them come again and again."""
    value = parse_element(element)
    identity = tuple(value.values()) if element.startswith("k:") and isinstance(value, dict) else (value,)
    return identity if is_hashable(identity) else None


def is_hashable(identity: Identity) -> bool:
    """Tell whether this identifies anything: keys of lists are plain values."""
    return not any(isinstance(value, dict | list) for value in identity)


def as_object(value: Any) -> JsonObject:
    """Return a value that should be an object; an empty one if it is none."""
    return value if isinstance(value, dict) else {}
