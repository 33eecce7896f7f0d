"""The local copy of a collection, with indexes.

Guarantees:
- S-2: `replace` is one step; a reader sees the state before it or after it, never between.
- S-6: each call answers from one state, and the indexes always fit the objects.
- S-7: `resource_version` is the newest version that the store itself has reached, bookmarks included.
- S-9: keys are `namespace/name`, or `name` for what has no namespace; a UID is not part of a key.
- S-21: an index may be added at any time; it covers what is stored already.

Nothing here awaits, so nothing can come between. Objects handed out are shared: never change them (S-8).
The store belongs to its informer; everyone else reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

Objects: TypeAlias = list[JsonObject]
"""Some objects; an alias because `Store.list` hides the type of that name."""

Changes: TypeAlias = "list[Change]"

IndexFunction: TypeAlias = Callable[[JsonObject], Iterable[str]]
"""Gives the values under which an object is found in an index."""


def object_key(obj: JsonObject) -> str:
    """Return the key of an object: `namespace/name`, or `name`."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def split_key(key: str) -> tuple[str | None, str]:
    """Return the namespace, if any, and the name that a key consists of."""
    namespace, separator, name = key.rpartition("/")
    return (namespace, name) if separator else (None, name)


def parse_resource_version(text: object) -> int:
    """Read a resource version as a number; 0, which is older than all, if it is none (C-5)."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else 0


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one object: added (`old` is None), updated, or deleted (`new` is None)."""

    key: str
    old: JsonObject | None
    new: JsonObject | None


class _Index:
    """One index: from values to the keys of the objects that have them."""

    __slots__ = ("_function", "_keys", "_name")

    def __init__(self, name: str, function: IndexFunction) -> None:
        self._name = name
        self._function = function
        # Inner dictionaries serve as sets that keep the order of insertion, so that listings repeat.
        self._keys: dict[str, dict[str, None]] = {}

    def keys(self, value: str) -> Iterable[str]:
        return self._keys.get(value, ())

    def add(self, key: str, obj: JsonObject) -> None:
        for value in self._values(key, obj):
            self._keys.setdefault(value, {})[key] = None

    def remove(self, key: str, obj: JsonObject) -> None:
        for value in self._values(key, obj):
            keys = self._keys.get(value)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._keys[value]

    def _values(self, key: str, obj: JsonObject) -> Iterable[str]:
        try:
            return tuple(self._function(obj))
        except Exception:
            # One odd object must not stop the informer of all the others; it is merely not found by this index.
            log.exception("index function failed", index=self._name, key=key)
            return ()


class Store:
    """Objects by key and by index."""

    def __init__(self) -> None:
        self._objects: dict[str, JsonObject] = {}
        self._indexes: dict[str, _Index] = {}
        self._functions: dict[str, IndexFunction] = {}
        self._resource_version = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    @property
    def resource_version(self) -> int:
        """The newest resource version that the store has reached; 0 before the first snapshot."""
        return self._resource_version

    def get(self, key: str) -> JsonObject | None:
        """Return the object of `key`, or None."""
        return self._objects.get(key)

    def keys(self) -> list[str]:
        """Return every key."""
        return list(self._objects)

    def list(self, namespace: str | None = None) -> Objects:
        """Return every object, or those of one namespace."""
        if namespace is None:
            return list(self._objects.values())
        prefix = f"{namespace}/"
        return [obj for key, obj in self._objects.items() if key.startswith(prefix)]

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Add an index over what is stored and what will be; adding the same function twice is harmless."""
        if name in self._functions:
            if self._functions[name] is function:
                return
            raise ValueError(f"there is an index {name!r} already, with another function; choose another name")
        index = _Index(name, function)
        for key, obj in self._objects.items():
            index.add(key, obj)
        self._functions[name] = function
        self._indexes[name] = index

    def by_index(self, index_name: str, value: str) -> Objects:
        """Return the objects that the index `index_name` knows under `value`."""
        index = self._indexes.get(index_name)
        if index is None:
            known = ", ".join(sorted(self._indexes)) or "none"
            raise KeyError(f"there is no index {index_name!r}; there are: {known}")
        return [self._objects[key] for key in index.keys(value)]

    def put(self, obj: JsonObject) -> Change:
        """Store an object and return what changed."""
        key = object_key(obj)
        old = self._objects.get(key)
        self._objects[key] = obj
        for index in self._indexes.values():
            if old is not None:
                index.remove(key, old)
            index.add(key, obj)
        return Change(key, old, obj)

    def remove(self, key: str) -> Change:
        """Remove an object, if it is there, and return what changed."""
        old = self._objects.pop(key, None)
        if old is not None:
            for index in self._indexes.values():
                index.remove(key, old)
        return Change(key, old, None)

    def replace(self, objects: Iterable[JsonObject], *, resource_version: str) -> Changes:
        """Make `objects` the whole content and return what changed, deletions first, unchanged objects left out."""
        fresh = {object_key(obj): obj for obj in objects}
        indexes = {name: _Index(name, function) for name, function in self._functions.items()}
        for index in indexes.values():
            for key, obj in fresh.items():
                index.add(key, obj)
        before, self._objects, self._indexes = self._objects, fresh, indexes
        self.advance(resource_version)
        changes = [Change(key, old, None) for key, old in before.items() if key not in fresh]
        changes += [
            Change(key, before.get(key), new) for key, new in fresh.items() if not same_version(before.get(key), new)
        ]
        return changes

    def advance(self, resource_version: str) -> None:
        """Record that the store reflects everything up to `resource_version`."""
        # A list served by a lagging server may be older than what was seen; what was reached stays reached.
        self._resource_version = max(self._resource_version, parse_resource_version(resource_version))


def same_version(old: JsonObject | None, new: JsonObject) -> bool:
    """Whether two objects of one key are the same state of the same object (S-15)."""
    if old is None:
        return False
    before, after = old["metadata"], new["metadata"]
    version = after.get("resourceVersion")
    return version is not None and before.get("resourceVersion") == version and before.get("uid") == after.get("uid")
