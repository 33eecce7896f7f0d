"""What the store keeps of an object, and what became of one: the deltas that event handlers get.

Guarantees:
- P-21: a record is a plain tuple of strings and bytes, which the garbage collector has nothing to walk through.
- Trees are decoded when they are first read, and shared by all handlers of one delta.
"""

from __future__ import annotations

from typing import TypeAlias

import orjson

from trainmaster.controller.kube.cache.index import IndexValues
from trainmaster.runtime.jsontree import JsonObject

Record: TypeAlias = tuple[str, str, bytes, IndexValues]
"""UID, resource version, body and index values. A plain tuple, because the collector stops tracking one of strings."""

Entry: TypeAlias = tuple[str, Record]
"""A key and its record."""


class Delta:
    """What became of one object: added (`old` is None), updated, or deleted (`new` is None).

    Attributes:
        key: The key of the object.
        initial: Whether it is the addition of what was there at the start.
        resync: Whether nothing changed and this is only a resync.
        final_state_unknown: Whether it is a deletion that was not seen; `old` may be older than the last state then.
    """

    __slots__ = ("_after", "_before", "_new", "_old", "final_state_unknown", "initial", "key", "resync")

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
        self.final_state_unknown = False
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
