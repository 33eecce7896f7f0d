"""Merge an applied object into the stored one, and remove what its manager no longer applies.

Results share their parts with the inputs, which are left untouched: copy before changing.
"""

from __future__ import annotations

from typing import Any, Final

from trainmaster.devcluster.apiserver.apply.fieldset import SELF, FieldSet, Tree, is_member
from trainmaster.devcluster.apiserver.apply.typed import index, index_stored, shape
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.runtime.jsontree import JsonObject

_GONE: Final = object()


def merge(live: JsonObject, applied: JsonObject, schema: Schema) -> JsonObject:
    """Merge an applied object into a stored one; whatever only one of them has stays."""
    merged: JsonObject = _merge(live, applied, schema)
    return merged


def remove(obj: JsonObject, fields: FieldSet, kept: FieldSet, schema: Schema) -> JsonObject:
    """Remove fields, unless they or what is below them is among the `kept` ones.

    A map or a list from which the last field goes, goes as well, unless it is kept itself. A field that the schema
    names goes with what was defaulted in it, unless something below it is kept. An element of a list goes with all that
    is in it unless the element itself is kept: part of an element is of no use without its key.
    """
    rest = _remove(obj, fields.tree, kept.tree, schema)
    return {} if rest is _GONE else rest


def _merge(live: Any, applied: Any, schema: Schema) -> Any:
    live_shape = shape(live, schema)
    if live_shape == "map" and isinstance(applied, dict):
        merged = dict(live)
        for name, value in applied.items():
            merged[name] = _merge(live[name], value, schema.child(name)) if name in live else value
        return merged
    if live_shape == "list" and isinstance(applied, list):
        return _merge_lists(live, applied, schema)
    if live_shape != "leaf" and applied is None:
        return live  # null says "no fields of mine"
    return applied


def _merge_lists(live: list[Any], applied: list[Any], schema: Schema) -> list[Any]:
    theirs = index_stored(live, schema)
    if theirs is None:
        return applied
    ours = index(applied, schema)
    items = schema.items()
    merged: list[Any] = []
    for element in interleave(list(theirs), list(ours)):
        if element not in ours:
            merged.append(theirs[element])
        elif element not in theirs:
            merged.append(ours[element])
        else:
            merged.append(_merge(theirs[element], ours[element], items))
    return merged


def interleave(live: list[str], applied: list[str]) -> list[str]:
    """Order the elements of two lists: as applied, and those that only the stored list has where they stood in it."""
    known = set(live)
    stated = set(applied)
    shared = [element for element in applied if element in known]
    order: list[str] = []
    position = 0  # in the stored list
    placed = 0  # how many of the shared elements are in the order
    for element in applied:
        following = shared[placed] if placed < len(shared) else None
        while position < len(live) and live[position] != following:
            if live[position] not in stated:
                order.append(live[position])
            position += 1  # a shared element that is applied elsewhere is passed over
        order.append(element)
        if element == following:
            placed += 1
            position += position < len(live)
    order.extend(element for element in live[position:] if element not in stated)
    return order


def _remove(value: Any, fields: Tree, kept: Tree | None, schema: Schema) -> Any:
    owned = kept or {}
    match shape(value, schema):
        case "map":
            rest: Any = dict(value)
            for element, node in fields.items():
                name = element.removeprefix("f:")
                if element == SELF or name not in rest:
                    continue
                if element not in owned and (is_member(node) or name in schema.properties):
                    del rest[name]
                else:
                    _put(rest, name, _remove(rest[name], node, owned.get(element), schema.child(name)))
        case "list" if (elements := index_stored(value, schema)) is not None:
            rest = elements
            for element, node in fields.items():
                if element == SELF or element not in rest:
                    continue
                if is_member(node) and not _owns(owned.get(element)):
                    del rest[element]
                else:
                    _put(rest, element, _remove(rest[element], node, owned.get(element), schema.items()))
            rest = list(rest.values())
        case _:
            return value
    return rest if rest or _owns(kept) else _GONE


def _owns(kept: Tree | None) -> bool:
    return kept is not None and is_member(kept)


def _put(container: JsonObject, key: str, value: Any) -> None:
    if value is _GONE:
        del container[key]
    else:
        container[key] = value
