"""The directives of a strategic merge patch: reading them from an object of the patch, and refusing malformed ones.

What they mean is the business of `merge`; this module only tells them from the fields.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.runtime.jsontree import JsonObject

PATCH: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
DELETE_FROM: Final = "$deleteFromPrimitiveList"
SET_ORDER: Final = "$setElementOrder"


class MergeError(ValueError):
    """The patch cannot be applied; `path` is the field of the patch that is at fault ("" for the patch itself)."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or 'the patch'}: {problem}")
        self.path = path


@dataclass(slots=True)
class Change:
    """What an object of a patch says about one field: a value (None deletes), scalars to remove, an order."""

    sets: bool = False
    value: Any = None
    removals: list[Any] | None = None
    order: list[Any] | None = None


def changes_of(patch: JsonObject, path: str) -> dict[str, Change]:
    """Sort the keys of an object of a patch by the field they are about."""
    changes: defaultdict[str, Change] = defaultdict(Change)
    for key, value in patch.items():
        directive, _, name = key.partition("/")
        if directive in {DELETE_FROM, SET_ORDER}:
            if not name:
                raise MergeError(join(path, key), f"names no list: write {directive}/<field>")
            if not isinstance(value, list):
                raise MergeError(join(path, key), f"must be a list, not {kind_of(value)}")
            if directive == DELETE_FROM:
                changes[name].removals = value
            else:
                changes[name].order = value
        elif key not in {PATCH, RETAIN_KEYS}:
            changes[key].sets = True
            changes[key].value = value
    return changes


def retained_keys(retained: Any, changes: Mapping[str, Change], path: str) -> frozenset[str]:
    """Read the list of `$retainKeys`, which has to name every field that the patch sets beside it."""
    here = join(path, RETAIN_KEYS)
    if not isinstance(retained, list) or not all(isinstance(key, str) for key in retained):
        raise MergeError(here, "must be a list of field names")
    keys = frozenset(retained)
    for name, change in changes.items():
        if change.value is not None and name not in keys:
            raise MergeError(here, f"does not hold {name!r}, which the patch sets: add it to the list")
    return keys


def join(path: str, name: str) -> str:
    """Give the path of a field of the object at `path`."""
    return f"{path}.{name}" if path else name


def kind_of(value: object) -> str:
    """Name the JSON type of a value for people."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"
