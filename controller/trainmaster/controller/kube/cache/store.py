"""The local copy of a collection, with indexes.

Guarantees:
- S-2: `replace` is one step; a reader sees the state before it or after it, never between.
- S-6: each call answers from one state, and the indexes always fit the objects.
- S-7: `resource_version` is the newest version that the store itself has reached, bookmarks included.
- S-8: nobody can change what is stored: it is kept as bytes, and every reader gets a tree of its own.
- S-9: keys are `namespace/name`, or `name` for what has no namespace; a UID is not part of a key.
- S-21: an index may be added at any time; it covers what is stored already. Objects are found by namespace without one.
- P-21, P-22: an object costs its bytes and some 400 more, and the garbage collector finds nothing to walk through.
- P-23: decoding a tree anew costs a seventh of copying it.

Nothing here awaits, so nothing can come between. The store belongs to its informer; everyone else reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import orjson
import structlog

from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

Objects: TypeAlias = list[JsonObject]
"""Some objects; an alias because `Store.list` hides the type of that name."""

Keys: TypeAlias = list[str]

IndexFunction: TypeAlias = Callable[[JsonObject], Iterable[str]]
"""Gives the values under which an object is found in an index."""

IndexValues: TypeAlias = tuple[tuple[str, ...], ...]
"""The values of one object in each index, in the order in which the indexes were added."""

Record: TypeAlias = tuple[str, str, bytes, IndexValues]
"""UID, resource version, body and index values. A plain tuple, because the collector stops tracking one of strings."""

Entry: TypeAlias = tuple[str, Record]
"""A key and its record."""


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


class Change:
    """What became of one object: added (`old` is None), updated, or deleted (`new` is None).

    Trees are decoded when they are first asked for, and shared by everyone who hears of this change.

    Attributes:
        key: The key of the object.
        initial: Whether it is the addition of what was there at the start.
        resync: Whether nothing changed and this is only a reminder.
        unseen: Whether it is a deletion that nobody told us of; `old` may be older than the last state then.
    """

    __slots__ = ("_after", "_before", "_new", "_old", "initial", "key", "resync", "unseen")

    def __init__(
        self,
        key: str,
        before: Record | None,
        after: Record | None,
        *,
        old: JsonObject | None = None,
        new: JsonObject | None = None,
    ) -> None:
        self.key = key
        self.initial = False
        self.resync = False
        self.unseen = False
        self._before = before
        self._after = after
        self._old = old
        self._new = new

    @property
    def is_addition(self) -> bool:
        """Whether the object was not in the store."""
        return self._before is None

    @property
    def is_deletion(self) -> bool:
        """Whether the object is not in the store any more."""
        return self._after is None

    @property
    def old(self) -> JsonObject | None:
        """The state before; of a deletion that was seen, the last state."""
        if self._old is None and self._before is not None:
            self._old = orjson.loads(self._before[2])
        return self._old

    @property
    def new(self) -> JsonObject | None:
        """The state after."""
        if self._new is None and self._after is not None:
            self._new = orjson.loads(self._after[2])
        return self._new

    @property
    def size(self) -> int:
        """Bytes that reading it may decode."""
        return sum(len(record[2]) for record in (self._before, self._after) if record is not None)


class _Index:
    """From values to the keys of the objects that have them."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        # Inner dictionaries serve as sets that keep the order of insertion, so that listings repeat.
        self._keys: dict[str, dict[str, None]] = {}

    def keys(self, value: str) -> Iterable[str]:
        return self._keys.get(value, ())

    def add(self, key: str, values: Iterable[str]) -> None:
        for value in values:
            self._keys.setdefault(value, {})[key] = None

    def remove(self, key: str, values: Iterable[str]) -> None:
        for value in values:
            keys = self._keys.get(value)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._keys[value]


class Store:
    """Objects by key, by namespace and by index."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._functions: dict[str, IndexFunction] = {}
        self._indexes: list[_Index] = []
        self._namespaces = _Index()
        self._bytes = 0
        self._resource_version = 0

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: str) -> bool:
        return key in self._records

    @property
    def resource_version(self) -> int:
        """The newest resource version that the store has reached; 0 before the first snapshot."""
        return self._resource_version

    @property
    def bytes(self) -> int:
        """The size of all bodies."""
        return self._bytes

    # Reading

    def get(self, key: str) -> JsonObject | None:
        """Return the object of `key`, or None; the tree is the caller's."""
        record = self._records.get(key)
        return None if record is None else _decode(record)

    def uid(self, key: str) -> str | None:
        """Return the UID of the object of `key`, without decoding it."""
        record = self._records.get(key)
        return None if record is None else record[0]

    def version(self, key: str) -> str | None:
        """Return the resource version of the object of `key`, without decoding it."""
        record = self._records.get(key)
        return None if record is None else record[1]

    def keys(self, namespace: str | None = None) -> Keys:
        """Return every key, or those of one namespace."""
        return list(self._records if namespace is None else self._namespaces.keys(namespace))

    def keys_by_index(self, index_name: str, value: str) -> Keys:
        """Return the keys of the objects that the index `index_name` knows under `value`, without decoding any."""
        return list(self._index(index_name).keys(value))

    def list(self, namespace: str | None = None) -> Objects:
        """Return every object, or those of one namespace; the trees are the caller's."""
        return list(self.each(namespace))

    def each(self, namespace: str | None = None) -> Iterator[JsonObject]:
        """Return the objects of this moment one by one; for large collections, as each is decoded when it is due."""
        return map(_decode, [self._records[key] for key in self.keys(namespace)])

    def holds(self, obj: JsonObject) -> bool:
        """Whether this very state of an object is stored (S-15)."""
        record = self._records.get(object_key(obj))
        return record is not None and record[:2] == _identity(obj["metadata"]) and record[1] != ""

    # Writing

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Add an index over what is stored and what will be; adding the same function twice is harmless.

        What is stored already is decoded in one go, so indexes are best added before the informer runs.
        """
        if name in self._functions:
            if self._functions[name] is function:
                return
            raise ValueError(f"there is an index {name!r} already, with another function; choose another name")
        self._functions[name] = function
        index = _Index()
        self._indexes.append(index)
        for key in self._records:
            self._records[key] = record = self._completed(key, self._records[key])
            index.add(key, record[3][-1])

    def entry(self, obj: JsonObject) -> Entry:
        """Make of an object what the store keeps of it."""
        key = object_key(obj)
        uid, version = _identity(obj["metadata"])
        values = tuple([_values(name, function, key, obj) for name, function in self._functions.items()])
        return key, (uid, version, _encode(obj), values)

    def put(self, obj: JsonObject) -> Change:
        """Store an object and return what changed."""
        key, after = self.entry(obj)
        before = self._records.get(key)
        self._records[key] = after
        self._bytes += len(after[2])
        if before is None:
            self._enter(key, after)
        else:
            self._bytes -= len(before[2])
            if before[3] != after[3]:
                for index, old, new in zip(self._indexes, before[3], after[3], strict=True):
                    index.remove(key, old)
                    index.add(key, new)
        return Change(key, before, after, new=obj)

    def remove(self, key: str, *, last: JsonObject | None = None) -> Change:
        """Remove an object, if it is there, and return what changed; `last` is its last state if that is known."""
        before = self._records.pop(key, None)
        if before is not None:
            self._bytes -= len(before[2])
            self._namespaces.remove(key, _namespace(key))
            for index, values in zip(self._indexes, before[3], strict=True):
                index.remove(key, values)
        return Change(key, before, None, old=last)

    def replace(self, entries: Iterable[Entry], *, resource_version: str) -> Changes:
        """Make `entries` the whole content and return what changed, deletions first, unchanged objects left out."""
        before, self._records = self._records, {}
        self._indexes = [_Index() for _ in self._functions]
        self._namespaces = _Index()
        self._bytes = 0
        for key, record in entries:
            # An index may have come after the entry was made.
            fresh = record if len(record[3]) == len(self._indexes) else self._completed(key, record)
            if key in self._records:
                self.remove(key)
            self._records[key] = fresh
            self._bytes += len(fresh[2])
            self._enter(key, fresh)
        self.advance(resource_version)
        changes = [Change(key, old, None) for key, old in before.items() if key not in self._records]
        for key, new in self._records.items():
            old = before.get(key)
            if old is None or old[:2] != new[:2] or new[1] == "":
                changes.append(Change(key, old, new))
        return changes

    def advance(self, resource_version: str) -> None:
        """Record that the store reflects everything up to `resource_version`."""
        # A list served by a lagging server may be older than what was seen; what was reached stays reached.
        self._resource_version = max(self._resource_version, parse_resource_version(resource_version))

    # Telling

    def contents(self) -> Iterator[Change]:
        """Return everything as additions, for whoever has heard of nothing."""
        return (Change(key, None, record) for key, record in list(self._records.items()))

    def reminder(self, key: str) -> Change | None:
        """Return the object of `key` as a change that changes nothing."""
        record = self._records.get(key)
        if record is None:
            return None
        change = Change(key, record, record)
        change.resync = True
        return change

    # Details

    def _index(self, name: str) -> _Index:
        for known, index in zip(self._functions, self._indexes, strict=True):
            if known == name:
                return index
        names = ", ".join(sorted(self._functions)) or "none"
        raise KeyError(f"there is no index {name!r}; there are: {names}")

    def _enter(self, key: str, record: Record) -> None:
        self._namespaces.add(key, _namespace(key))
        for index, values in zip(self._indexes, record[3], strict=True):
            index.add(key, values)

    def _completed(self, key: str, record: Record) -> Record:
        """Compute the index values that a record lacks."""
        uid, version, body, values = record
        obj = _decode(record)
        lacking = list(self._functions.items())[len(values) :]
        return uid, version, body, values + tuple([_values(name, function, key, obj) for name, function in lacking])


Changes: TypeAlias = list[Change]


def _decode(record: Record) -> JsonObject:
    obj: JsonObject = orjson.loads(record[2])
    return obj


def _encode(obj: JsonObject) -> bytes:
    try:
        # A copy, because orjson leaves its result in the buffer it grew, which is up to four times as large.
        return memoryview(orjson.dumps(obj)).tobytes()
    except orjson.JSONEncodeError:
        # It reads deeper nesting than it writes, and one odd object must not stop the informer of all the others.
        try:
            return json.dumps(obj).encode()
        except RecursionError:
            log.error("an object is nested too deeply to be kept, only its metadata is", key=object_key(obj))
            return orjson.dumps({name: obj[name] for name in ("apiVersion", "kind", "metadata") if name in obj})


def _identity(metadata: dict[str, Any]) -> tuple[str, str]:
    return metadata.get("uid") or "", metadata.get("resourceVersion") or ""


def _namespace(key: str) -> tuple[str, ...]:
    namespace, separator, _ = key.rpartition("/")
    return (namespace,) if separator else ()


def _values(name: str, function: IndexFunction, key: str, obj: JsonObject) -> tuple[str, ...]:
    try:
        return tuple(function(obj))
    except Exception:
        # One odd object must not stop the informer of all the others; it is merely not found by this index.
        log.exception("index function failed", index=name, key=key)
        return ()
