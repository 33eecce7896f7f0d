"""The indexes of a store: from values that functions find in objects to the keys of these objects.

Guarantees:
- S-21: an index may be added at any time; the store completes what it holds already.
- An index function that raises is logged, a few times, and makes the object unfindable by that index, nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import orjson
import structlog

from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

IndexFunc: TypeAlias = Callable[[JsonObject], Iterable[str]]
"""Gives the values under which an object is found in an index."""

IndexValues: TypeAlias = bytes
"""The values of one object in each index, in the order in which the indexes were added: a list of JSON and a line each.

Bytes, because tuples within tuples take the garbage collector several passes until it follows them no more.
"""

_LOGGED: Final = 10
"""Failures of one index that are told of: what fails for one object may fail for all."""


class Index:
    """From values to the keys of the objects that have them."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        # Inner dictionaries serve as sets that keep the order of insertion, so that listings repeat.
        self._keys: dict[str, dict[str, None]] = {}

    def keys(self, value: str) -> Iterable[str]:
        """Return the keys of the objects that have a value."""
        return self._keys.get(value, ())

    def insert(self, key: str, values: Iterable[str]) -> None:
        """Have `key` found under each of its values."""
        for value in values:
            self._keys.setdefault(value, {})[key] = None

    def delete(self, key: str, values: Iterable[str]) -> None:
        """Have `key` found under none of its values any more."""
        for value in values:
            keys = self._keys.get(value)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._keys[value]


class Indexers:
    """The indexes of one store, each with the function that fills it."""

    def __init__(self) -> None:
        self._functions: dict[str, IndexFunc] = {}
        self._failures: Counter[str] = Counter()
        self._indexes: list[Index] = []

    def __len__(self) -> int:
        return len(self._functions)

    def names(self) -> list[str]:
        """Return the names of all indexes."""
        return list(self._functions)

    def add(self, name: str, function: IndexFunc) -> bool:
        """Add an empty index; False if there is this very index already.

        Raises:
            ValueError: There is another one of this name.
        """
        if name in self._functions:
            if self._functions[name] is function:
                return False
            raise ValueError(f"there is an index {name!r} already, with another function; choose another name")
        self._functions[name] = function
        self._indexes.append(Index())
        return True

    def values(self, key: str, obj: JsonObject, *, known: IndexValues = b"") -> IndexValues:
        """Compute the values of an object in each index, those apart that are known of the first ones."""
        functions = self._functions.items() if not known else list(self._functions.items())[known.count(b"\n") :]
        # Joined into bytes of their own, because orjson leaves its result in a buffer that is much larger.
        return b"".join([known, *[self._values(name, function, key, obj) for name, function in functions]])

    def covers(self, values: IndexValues) -> bool:
        """Whether these are values in all indexes; one may have been added since."""
        return values.count(b"\n") == len(self._functions)

    def keys(self, name: str, value: str) -> Iterable[str]:
        """Return the keys of the objects that the index `name` has under `value`.

        Raises:
            KeyError: There is no such index.
        """
        for known, index in zip(self._functions, self._indexes, strict=True):
            if known == name:
                return index.keys(value)
        names = ", ".join(sorted(self._functions)) or "none"
        raise KeyError(f"there is no index {name!r}; there are: {names}")

    def insert(self, key: str, values: IndexValues, *, first: int = 0) -> None:
        """Enter an object into the indexes, from the index number `first` on."""
        for index, own in zip(self._indexes[first:] if first else self._indexes, _lists(values)[first:], strict=True):
            index.insert(key, own)

    def update(self, key: str, before: IndexValues, after: IndexValues) -> None:
        """Move an object to the values that it has now."""
        if before != after:
            for index, old, new in zip(self._indexes, _lists(before), _lists(after), strict=True):
                index.delete(key, old)
                index.insert(key, new)

    def delete(self, key: str, values: IndexValues) -> None:
        """Take an object out of the indexes."""
        for index, own in zip(self._indexes, _lists(values), strict=True):
            index.delete(key, own)

    def clear(self) -> None:
        """Empty the indexes."""
        self._indexes = [Index() for _ in self._functions]

    def _values(self, name: str, function: IndexFunc, key: str, obj: JsonObject) -> bytes:
        try:
            return orjson.dumps([*function(obj)], option=orjson.OPT_APPEND_NEWLINE)
        except Exception as error:
            # One odd object must not stop the informer of all the others; it is merely not found by this index.
            self._failures[name] += 1
            if self._failures[name] <= _LOGGED:
                log.exception("index function failed", index=name, key=key)
            else:
                log.debug("index function failed", index=name, key=key, error=str(error))
            return b"[]\n"


def _lists(values: IndexValues) -> list[list[str]]:
    return [orjson.loads(line) for line in values.split(b"\n")[:-1]]
