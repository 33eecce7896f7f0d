"""The local copy of a collection, with indexes.

Guarantees:
- S-2: `replace` is one step; a reader sees the state before it or after it, never between.
- S-6: each call answers from one state, and the indexes always fit the objects.
- S-7: `resource_version` is the newest version that the store itself has reached, bookmarks included. What is read by
  namespace reaches its versions by namespace: `reached` returns that of an object.
- S-8: nobody can change what is stored: it is kept as bytes, and every reader gets a tree of its own, decoded anew.
- S-9: keys are `namespace/name`, or `name` for what has no namespace; a UID is not part of a key.
- S-21: an index may be added at any time; it covers what is stored already. Objects are found by namespace without one.
  An index function that raises is logged, a few times, and makes the object unfindable by that index, nothing else.
- An object that is nested more deeply than anybody reads is kept by its metadata and says so (`jsontree.UNREADABLE`).
- P-21, P-22: an object costs its bytes and some 400 more, and the garbage collector soon has nothing to follow.
- P-23: decoding a tree anew costs a seventh of copying it.

Nothing here awaits, so nothing can come between. The store belongs to its informer; everyone else reads, webhooks and
plans from other threads. For them:
- Every call takes `_contents` once and reads that. A replacement fills contents of its own and then swaps them in, so
  that what is there before and after it is never missing in between.
- A change of one object enters what is new before it removes what is old. What one call returns may lack an object that
  was deleted meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import orjson
import structlog

from trainmaster.controller.kube.cache.delta import Delta, Entry, IndexValues, Record
from trainmaster.controller.kube.rest.partial import partial_metadata, well_typed
from trainmaster.runtime.jsontext import MAX_DEPTH, is_too_deep, too_deep
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject

log = structlog.get_logger(__name__)

IndexFunc: TypeAlias = Callable[[JsonObject], Iterable[str]]
"""Gives the values under which an object is found in an index."""

_LOGGED: Final = 10
"""Failures of one index that are logged as errors: what fails for one object may fail for all."""


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


class StoreReader(ABC):
    """Cached objects of one kind, to read from."""

    @property
    @abstractmethod
    def is_served(self) -> bool:
        """Whether the server serves the kind, as far as whoever fills the store knows."""

    @abstractmethod
    def reached(self, key: str) -> int:
        """Return the newest resource version up to which all changes of the object of `key` have been seen."""

    @abstractmethod
    def get(self, key: str) -> JsonObject | None:
        """Return the object of `key`, or None; the tree is the caller's."""

    @abstractmethod
    def uid(self, key: str) -> str | None:
        """Return the UID of the object of `key`, without decoding it."""

    @abstractmethod
    def size(self, key: str) -> int:
        """Return how many bytes the object of `key` has, without decoding it; 0 if there is none."""

    @abstractmethod
    def keys(self, namespace: str | None = None) -> list[str]:
        """Return every key, or those of one namespace."""

    @abstractmethod
    def index_keys(self, index_name: str, value: str) -> list[str]:
        """Return the keys of the objects that the index `index_name` has under `value`, without decoding any.

        Raises:
            KeyError: There is no such index.
        """

    @abstractmethod
    def index_names(self) -> list[str]:
        """Return the names of the indexes."""

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, key: str) -> bool:
        return self.uid(key) is not None

    def body(self, key: str) -> bytes | None:
        """Return the JSON of the object of `key`, or None, for callers that may not need it decoded."""
        found = self.get(key)
        return None if found is None else orjson.dumps(found)

    def each(self, namespace: str | None = None) -> Iterator[JsonObject]:
        """Return the objects of this moment one by one, all or those of one namespace; each is decoded when due."""
        found = map(self.get, self.keys(namespace))
        return (obj for obj in found if obj is not None)

    def by_index(self, index_name: str, value: str) -> Iterator[JsonObject]:
        """Return the objects that the index `index_name` has under `value` one by one, as by `each`."""
        found = map(self.get, self.index_keys(index_name, value))
        return (obj for obj in found if obj is not None)


class _Index:
    """From values to the keys of the objects that have them."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        # Inner dictionaries serve as sets that keep the order of insertion, so that listings repeat.
        self._keys: dict[str, dict[str, None]] = {}

    def keys(self, value: str) -> list[str]:
        return list(self._keys.get(value, ()))

    def insert(self, key: str, values: Iterable[str]) -> None:
        for value in values:
            self._keys.setdefault(value, {})[key] = None

    def delete(self, key: str, values: Iterable[str]) -> None:
        for value in values:
            keys = self._keys.get(value)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._keys[value]


class _Contents:
    """What is stored at one moment, with its indexes."""

    __slots__ = ("indexes", "namespaces", "records", "size")

    def __init__(self, indexes: int) -> None:
        self.records: dict[str, Record] = {}
        self.namespaces = _Index()
        self.indexes = [_Index() for _ in range(indexes)]
        self.size = 0

    def put(self, key: str, record: Record) -> Record | None:
        """Store a record, and return the one that it replaces."""
        before = self.records.get(key)
        self.records[key] = record
        self.size += len(record[2])
        if before is None:
            self.namespaces.insert(key, _namespace(key))
            for index, values in zip(self.indexes, record[3], strict=True):
                index.insert(key, values)
        else:
            self.size -= len(before[2])
            if before[3] != record[3]:
                for index, old, new in zip(self.indexes, before[3], record[3], strict=True):
                    index.insert(key, new)
                    index.delete(key, set(old).difference(new))
        return before

    def delete(self, key: str) -> Record | None:
        """Remove a record, and return it."""
        before = self.records.pop(key, None)
        if before is not None:
            self.size -= len(before[2])
            self.namespaces.delete(key, _namespace(key))
            for index, values in zip(self.indexes, before[3], strict=True):
                index.delete(key, values)
        return before


class Store(StoreReader):
    """Objects by key, by namespace and by index.

    Args:
        on_unreadable: Called with key and object for each entry of which only the metadata could be read.
    """

    def __init__(self, *, on_unreadable: Callable[[str, JsonObject], None] = lambda _key, _obj: None) -> None:
        self._on_unreadable = on_unreadable
        self._indexers: dict[str, IndexFunc] = {}
        self._index_failures: Counter[str] = Counter()
        self._contents = _Contents(0)
        self._resource_version = 0
        self._is_served = True
        self._reached: dict[str, int] = {}
        """By namespace, where each is read for itself."""

    def __len__(self) -> int:
        return len(self._contents.records)

    def __contains__(self, key: str) -> bool:
        return key in self._contents.records

    @property
    def resource_version(self) -> int:
        """The newest resource version that the store has reached; 0 before the first snapshot."""
        return self._resource_version

    def reached(self, key: str) -> int:
        """Return the newest resource version up to which all changes of the object of `key` have been seen."""
        return self._reached.get(key.rpartition("/")[0], 0) if self._reached else self._resource_version

    @property
    def is_served(self) -> bool:
        """Whether the server serves the kind, as far as whoever fills the store knows."""
        return self._is_served

    def set_served(self, is_served: bool) -> None:
        """Record whether the server serves the kind."""
        self._is_served = is_served

    @property
    def total_size(self) -> int:
        """The bytes of all bodies."""
        return self._contents.size

    # Reading

    def get(self, key: str) -> JsonObject | None:
        """Return the object of `key`, or None; the tree is the caller's."""
        record = self._contents.records.get(key)
        return None if record is None else _decode(record)

    def body(self, key: str) -> bytes | None:
        """Return the JSON of the object of `key`, or None, for callers that may not need it decoded."""
        record = self._contents.records.get(key)
        return None if record is None else record[2]

    def uid(self, key: str) -> str | None:
        """Return the UID of the object of `key`, without decoding it."""
        record = self._contents.records.get(key)
        return None if record is None else record[0]

    def version(self, key: str) -> str | None:
        """Return the resource version of the object of `key`, without decoding it."""
        record = self._contents.records.get(key)
        return None if record is None else record[1]

    def size(self, key: str) -> int:
        """Return how many bytes the object of `key` has, without decoding it; 0 if there is none."""
        record = self._contents.records.get(key)
        return 0 if record is None else len(record[2])

    def keys(self, namespace: str | None = None) -> list[str]:
        """Return every key, or those of one namespace."""
        contents = self._contents
        return list(contents.records) if namespace is None else contents.namespaces.keys(namespace)

    def index_keys(self, index_name: str, value: str) -> list[str]:
        """Return the keys of the objects that the index `index_name` has under `value`, without decoding any.

        Raises:
            KeyError: There is no such index.
        """
        return self._contents.indexes[self._position(index_name)].keys(value)

    def index_names(self) -> list[str]:
        """Return the names of the indexes."""
        return list(self._indexers)

    def by_index(self, index_name: str, value: str) -> Iterator[JsonObject]:
        """Return the objects that the index `index_name` has under `value` one by one, as by `each`."""
        contents = self._contents
        return _of_this_moment(contents, contents.indexes[self._position(index_name)].keys(value))

    def each(self, namespace: str | None = None) -> Iterator[JsonObject]:
        """Return the objects of this moment one by one, all or those of one namespace; each is decoded when due."""
        contents = self._contents
        keys = list(contents.records) if namespace is None else contents.namespaces.keys(namespace)
        return _of_this_moment(contents, keys)

    def holds(self, key: str, obj: JsonObject) -> bool:
        """Whether this very state of the object of `key` is stored (S-15)."""
        record = self._contents.records.get(key)
        if record is None or record[1] == "":
            return False
        metadata = obj["metadata"]
        return record[1] == metadata.get("resourceVersion") and record[0] == (metadata.get("uid") or "")

    # Writing

    def add_indexer(self, name: str, function: IndexFunc) -> None:
        """Add an index over what is stored and what will be; adding the same function twice is harmless.

        What is stored already is decoded in one go, so indexes are best added before the informer runs.

        Raises:
            ValueError: There is another one of this name.
        """
        if name in self._indexers:
            if self._indexers[name] is not function:
                raise ValueError(f"there is an index {name!r} already, with another function; choose another name")
            return
        index, records = _Index(), self._contents.records
        for key, record in records.items():
            values = self._index_values(name, function, key, _decode(record))
            index.insert(key, values)
            records[key] = (*record[:3], (*record[3], values))
        self._contents.indexes.append(index)
        self._indexers[name] = function  # last: a reader that finds its name finds the index filled

    def entry(self, obj: JsonObject) -> Entry:
        """Return what the store keeps of an object."""
        key = object_key(obj)
        return key, self._record(key, *kept(obj))

    def put(self, obj: JsonObject, *, key: str | None = None) -> Delta:
        """Store an object and return what changed; `key` is that of the object, where it is known."""
        if key is None:
            key = object_key(obj)
        new, body = kept(obj)
        after = self._record(key, new, body)
        before = self._contents.put(key, after)
        return Delta(key, before, after, new=new)

    def delete(self, key: str, *, last: JsonObject | None = None) -> Delta:
        """Delete an object, if it is there, and return what changed; `last` is its last state if that is known."""
        return Delta(key, self._contents.delete(key), None, old=last)

    def replace(self, entries: Iterable[Entry], *, resource_version: str, namespace: str | None = None) -> list[Delta]:
        """Make `entries` the whole content and return what changed, deletions first, unchanged objects left out.

        Args:
            namespace: If it is the content of one namespace only.
        """
        before, after = self._contents, _Contents(len(self._indexers))
        for key, record in before.records.items() if namespace is not None else ():
            if (namespace,) != _namespace(key):
                after.put(key, record)
        for key, record in entries:
            after.put(key, self._completed(key, record))
        self._contents = after
        self.update_resource_version(resource_version, namespace)
        deltas = [Delta(key, old, None) for key, old in before.records.items() if key not in after.records]
        for key, new in after.records.items():
            old = before.records.get(key)
            if old is new:
                continue  # of another namespace
            if old is None or old[:2] != new[:2] or new[1] == "":
                deltas.append(Delta(key, old, new))
        return deltas

    def update_resource_version(self, resource_version: str, namespace: str | None = None) -> None:
        """Record that the store reflects everything up to `resource_version`, or everything of a namespace."""
        # A list served by a lagging server may be older than what was seen; what was reached stays reached.
        version = parse_resource_version(resource_version)
        self._resource_version = max(self._resource_version, version)
        if namespace is not None:
            self._reached[namespace] = max(self._reached.get(namespace, 0), version)

    # Deltas for event handlers

    def initial_deltas(self) -> Iterator[Delta]:
        """Return everything as additions, for a handler that comes late."""
        return (Delta(key, None, record) for key, record in list(self._contents.records.items()))

    def resync_delta(self, key: str) -> Delta | None:
        """Return the object of `key` as a delta that changes nothing."""
        record = self._contents.records.get(key)
        if record is None:
            return None
        delta = Delta(key, record, record)
        delta.resync = True
        return delta

    # Details

    def _position(self, index_name: str) -> int:
        try:
            return list(self._indexers).index(index_name)
        except ValueError:
            names = ", ".join(sorted(self._indexers)) or "none"
            raise KeyError(f"there is no index {index_name!r}; there are: {names}") from None

    def _record(self, key: str, obj: JsonObject, body: bytes) -> Record:
        if UNREADABLE in obj:
            self._on_unreadable(key, obj)
        metadata = obj["metadata"]
        values = tuple(self._index_values(name, function, key, obj) for name, function in self._indexers.items())
        return metadata.get("uid") or "", metadata.get("resourceVersion") or "", body, values

    def _completed(self, key: str, record: Record) -> Record:
        """Compute the values that a record lacks because its index came after it was made."""
        missing = list(self._indexers.items())[len(record[3]) :]
        if not missing:
            return record
        obj = _decode(record)
        added = (self._index_values(name, function, key, obj) for name, function in missing)
        return (*record[:3], (*record[3], *added))

    def _index_values(self, name: str, function: IndexFunc, key: str, obj: JsonObject) -> IndexValues:
        try:
            return tuple(function(obj))
        except Exception as error:
            # One odd object must not stop the informer of all the others; it is merely not found by this index.
            self._index_failures[name] += 1
            if self._index_failures[name] <= _LOGGED:
                log.exception("index function failed", index=name, key=key)
            else:
                log.debug("index function failed", index=name, key=key, error=str(error))
            return ()


def _of_this_moment(contents: _Contents, keys: Iterable[str]) -> Iterator[JsonObject]:
    found = [record for key in keys if (record := contents.records.get(key)) is not None]
    return map(_decode, found)


def _decode(record: Record) -> JsonObject:
    obj: JsonObject = orjson.loads(record[2])
    return obj


def kept(obj: JsonObject) -> tuple[JsonObject, bytes]:
    """Return what is kept of an object, and that as bytes: all of it, unless it is nested too deeply."""
    body = _encode(obj)
    if body is None:
        # What clients write into managedFields must not make the rest unreadable.
        obj = {**obj, "metadata": well_typed(obj["metadata"])}
        body = _encode(obj)
    if body is None:
        obj = partial_metadata(obj, too_deep())
        body = orjson.dumps(obj)
    return obj, body


def _encode(obj: JsonObject) -> bytes | None:
    try:
        encoded = orjson.dumps(obj)
    except orjson.JSONEncodeError:
        return None  # its own bound, which is above ours
    # Counting is quick, and few objects have so many lists and maps that it takes a look at their depth.
    if encoded.count(b"{") + encoded.count(b"[") > MAX_DEPTH and is_too_deep(obj):
        return None
    # A copy, because orjson leaves its result in the buffer it grew, which is up to four times as large.
    return memoryview(encoded).tobytes()


def _namespace(key: str) -> tuple[str, ...]:
    namespace, separator, _ = key.rpartition("/")
    return (namespace,) if separator else ()
