"""Drift: whether an object in the cluster already is what we would apply, and where it is not.

An apply that changes nothing still costs a full request with admission, so settled objects are recognised without
one, also right after a restart, when nobody remembers what was applied.

Guarantees:
- C-12, A-7: what an apply would leave as it is, is not written; what it would change, is (KEP-555).
- A-2: that includes what we own and no longer want, and what we want and no longer own: others may remove that.
- A-6: which lists are maps, by which keys, which are sets and which are atomic is read off our own entry in the
  managedFields (KEP-555, FieldsV1). There the server has written down what it made of our last apply, by its schema.
  Clients may write there what they like, so whatever has another shape than it should have is passed over.
- Fields of others are no difference: neither theirs in maps, nor their items of lists that are maps or sets.

What cannot be told from the object alone is `Drift.POSSIBLE`. The items of an atomic list, for instance, may have more
fields than we want because the server adds defaults, or because we used to want them. Applying it once tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

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
_IDENTITY: Final = frozenset({"apiVersion", "kind", "metadata"})
_UNTRACKED_METADATA: Final = frozenset({"name", "namespace", "uid", "resourceVersion"})
"""What identifies an object is owned by nobody."""

_MISSING: Final = object()
"""What is equal to nothing that an object holds."""


class Drift(IntEnum):
    """How an object differs from what would be applied."""

    NONE = 0
    """An apply would change nothing, or at most who owns a value that others have set as we want it."""

    POSSIBLE = 1
    """An apply may change something, or have the same answer as the last one."""

    CERTAIN = 2
    """An apply would change something, or be refused."""


class Difference(NamedTuple):
    """A place at which an object is not what would be applied."""

    path: Path
    drift: Drift


def drift(desired: JsonObject, observed: JsonObject, *, owned_fields: JsonObject | None) -> Drift:
    """Tell whether applying `desired` would change `observed`.

    Args:
        desired: The complete object that would be applied.
        owned_fields: What our field manager owns according to the object's managedFields (FieldsV1); None if it has
            never applied the object.
    """
    if owned_fields is None:
        return Drift.CERTAIN
    worst = Drift.NONE
    for difference in differences(desired, observed, owned_fields):
        if difference.drift is Drift.CERTAIN:
            return Drift.CERTAIN
        worst = difference.drift
    return worst


def drift_of_created(desired: Any, created: Any) -> Drift:
    """Tell whether applying `desired` again would change what an apply of it has just created: all of that is owned.

    An empty map, and a list of items without names, may be owned as a whole, so that what the server has filled in
    would be taken away.
    `Drift.CERTAIN` means here that nobody can tell without knowing what is owned.
    """
    return Drift.NONE if desired == created else _drift_of_different(desired, created)


def _drift_of_different(desired: Any, created: Any) -> Drift:
    # Types and a loop for each of them: this is done for every object that is created, and one loop over pairs that are
    # collected before takes 1.4 times as long.
    worst = Drift.NONE
    if type(desired) is dict and type(created) is dict:
        if not desired:
            return Drift.POSSIBLE
        for name, wanted in desired.items():
            there = created.get(name, _MISSING)
            if wanted != there and (found := _drift_of_different(wanted, there)):
                if found is Drift.CERTAIN:
                    return found
                worst = found
    elif type(desired) is list and type(created) is list and len(desired) == len(created):
        for wanted, there in zip(desired, created, strict=True):
            if wanted != there and (found := _drift_of_different(wanted, there)):
                if found is Drift.CERTAIN:
                    return found
                worst = found
            if type(wanted) is not dict or "name" not in wanted:
                worst = Drift.POSSIBLE
    else:
        return Drift.CERTAIN
    return worst


def differences(desired: JsonObject, observed: JsonObject, owned_fields: JsonObject) -> Iterator[Difference]:
    """Find the places at which applying `desired` would change `observed`, or may; see `drift`."""
    for section in _sections(desired, observed, owned_fields):
        yield from _compare_maps(*section)


def _sections(
    desired: JsonObject, observed: JsonObject, owned_fields: JsonObject
) -> Iterator[tuple[JsonObject, JsonObject, JsonObject, Path]]:
    """Return the maps that are compared: all but what identifies the object, and the metadata without that."""
    fields = {element: below for element, below in owned_fields.items() if element != "f:metadata"}
    yield _without(desired, _IDENTITY), observed, fields, ()
    fields = {
        element: below
        for element, below in as_object(owned_fields.get("f:metadata")).items()
        if element[2:] not in _UNTRACKED_METADATA
    }
    yield _without(desired["metadata"], _UNTRACKED_METADATA), observed["metadata"], fields, ("f:metadata",)


def _without(obj: JsonObject, names: frozenset[str]) -> JsonObject:
    return {name: value for name, value in obj.items() if name not in names}


def _compare(desired: Any, observed: Any, fields: Any, path: Path) -> Iterator[Difference]:
    """Compare two values, of which `fields` are owned below `path`; none, if they are owned as a whole."""
    if fields and isinstance(fields, dict) and isinstance(desired, dict) and isinstance(observed, dict):
        yield from _compare_maps(desired, observed, fields, path)
    elif fields and isinstance(fields, dict) and isinstance(desired, list) and isinstance(observed, list):
        yield from _compare_lists(desired, observed, fields, path)
    elif desired != observed:
        # What others put into something that we want empty may be theirs, and may be gone if it is atomic.
        empty = desired in ({}, []) and type(desired) is type(observed)
        yield Difference(path, Drift.POSSIBLE if empty or _contains(observed, desired) else Drift.CERTAIN)


def _contains(observed: Any, desired: Any) -> bool:
    """Tell whether values that are owned as a whole differ in nothing but fields that only the observed one has."""
    if isinstance(desired, dict) and isinstance(observed, dict):
        return all(name in observed and _contains(observed[name], value) for name, value in desired.items())
    if isinstance(desired, list) and isinstance(observed, list):
        return len(desired) == len(observed) and all(map(_contains, observed, desired))
    return bool(observed == desired)


def _compare_maps(desired: JsonObject, observed: JsonObject, fields: JsonObject, path: Path) -> Iterator[Difference]:
    owned = 0
    for element, below in fields.items():
        if element == ".":
            continue
        name = element[2:]
        if name not in desired or not element.startswith("f:"):
            yield Difference((*path, element), Drift.CERTAIN)
            continue
        owned += 1
        if name not in observed:
            yield from _missing(desired[name], observed, (*path, element))
        # Most values are plain, and equal.
        elif below or desired[name] != observed[name]:
            yield from _compare(desired[name], observed[name], below, (*path, element))
    if owned < len(desired):
        for name, value in desired.items():
            if f"f:{name}" not in fields:
                yield from _missing(value, observed, (*path, f"f:{name}"))


def _missing(desired: Any, observed: JsonObject, path: Path) -> Iterator[Difference]:
    """Find the differences where something is desired that is not there, or not ours."""
    name = path[-1].removeprefix("f:")
    there = observed.get(name)
    if desired and isinstance(desired, dict) and isinstance(there, dict):
        yield from _compare_maps(desired, there, {}, path)
    else:
        # Of the kinds that are built into the server, most empty values vanish when they are stored.
        yield Difference(path, Drift.CERTAIN if desired or name in observed else Drift.POSSIBLE)


def _compare_lists(desired: list[Any], observed: list[Any], fields: JsonObject, path: Path) -> Iterator[Difference]:
    """Compare lists whose items are owned one by one: maps by some of their fields, or the members of a set."""
    elements = [element for element in fields if element != "."]
    keys = key_names(elements)
    wanted, live = _positions(desired, keys), _positions(observed, keys)
    if wanted is None or live is None:
        yield Difference(path, Drift.CERTAIN)
        return
    places: dict[int, int] = {}
    for element in elements:
        identity = identity_of(element)
        position = wanted.get(identity) if identity in wanted else _incomplete(wanted, identity)
        if position is None:
            yield Difference((*path, element), Drift.CERTAIN)
        elif identity not in live:
            yield Difference((*path, element), Drift.CERTAIN)
            places[position] = len(observed)
        else:
            places[position] = live[identity]
            yield from _compare(desired[position], observed[live[identity]], fields[element], (*path, element))
    for position, item in enumerate(desired):
        if position not in places:
            yield Difference((*path, _element(item, keys)), Drift.CERTAIN)
    order = [places[position] for position in sorted(places)]
    if order != sorted(order):
        # Servers before Kubernetes 1.30 leave the order as it is.
        yield Difference(path, Drift.POSSIBLE)


def _positions(items: list[Any], keys: tuple[str, ...] | None) -> dict[Identity | None, int] | None:
    """Return where the items of a list are; None if they are no items of such a list."""
    found: dict[Identity | None, int] = {}
    for position, item in enumerate(items):
        if keys is None:
            identity: Identity = (item,)
        elif isinstance(item, dict):
            identity = tuple(map(item.get, keys))
        else:
            return None
        if not is_hashable(identity):
            return None
        found[identity] = position
    return found


def _incomplete(wanted: Mapping[Identity | None, int], identity: Identity | None) -> int | None:
    """Find an item that leaves a part of its identity to the server, which fills it in (a port's protocol)."""
    for candidate, position in wanted.items():
        if candidate and identity and len(candidate) == len(identity) > 1 and None in candidate:
            pairs = zip(candidate, identity, strict=True)
            if all(part is None or part == whole for part, whole in pairs):
                return position
    return None


def _element(item: Any, keys: tuple[str, ...] | None) -> str:
    """Write the path element of an item."""
    if keys is None or not isinstance(item, dict):
        return f"v:{orjson.dumps(item).decode()}"
    return f"k:{orjson.dumps({key: item[key] for key in keys if key in item}).decode()}"


def strip_managed_fields(obj: JsonObject) -> JsonObject:
    """Strip an object that we apply of its managedFields; our own entry stays, as text (`owned_fields`)."""
    metadata = obj["metadata"]
    entry = _applied_by(FIELD_MANAGER, obj)
    metadata.pop("managedFields", None)
    try:
        if entry is not None:
            metadata[OWNED_FIELDS] = orjson.dumps(entry).decode()
    except orjson.JSONEncodeError:
        return obj  # nested more deeply than anybody reads
    return obj


def owned_fields(obj: JsonObject) -> JsonObject | None:
    """Return what we own by apply of a stripped object, apart from the status; None if we never applied it."""
    text = obj["metadata"].get(OWNED_FIELDS)
    if text is None:
        return None
    # What cannot be read is as before a first apply: the next one brings order.
    return owned_fields_of({"metadata": {"managedFields": [_json_of(text)]}}, FIELD_MANAGER)


def owned_fields_of(obj: JsonObject, manager: str) -> JsonObject | None:
    """Extract what a manager owns by apply, apart from the status; None if it never applied the object."""
    entry = _applied_by(manager, obj)
    return None if entry is None else as_object(entry.get("fieldsV1"))


def _applied_by(manager: str, obj: JsonObject) -> JsonObject | None:
    for entry in managed_entries(obj):
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            return entry
    return None


def managed_entries(obj: JsonObject) -> Iterator[JsonObject]:
    """Return the entries of managedFields that are some: clients may write there what they like."""
    entries = obj["metadata"].get("managedFields")
    return filter(as_object, entries) if isinstance(entries, list) else iter(())


def parse_element(element: str) -> Any:
    """Read the JSON in a path element that names an item of a list; None if there is none in it."""
    return _json_of(element[2:])


def _json_of(text: str) -> Any:
    try:
        return load_json(text)
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
