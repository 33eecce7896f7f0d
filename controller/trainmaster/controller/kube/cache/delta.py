"""What the store keeps of an object (its record), and what event handlers get when that changes (a delta).

Guarantees:
- P-21: a record is a plain tuple of strings and bytes.
- Trees are decoded when they are first read, and shared by all handlers of one delta: a handler that may change them,
  or reads them in another thread, takes the delta `apart`.
- S-3: the delta of a deletion that was not seen says so (`final_state_unknown`) and holds the last state that was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import orjson

from trainmaster.runtime.jsontree import JsonObject, copy_json

IndexValues: TypeAlias = tuple[str, ...]
"""The values under which one index has an object."""

Record: TypeAlias = tuple[str, str, bytes, tuple[IndexValues, ...]]
"""UID, resource version, body, and the values for each index in the order in which the indexes were added.

A plain tuple, because the garbage collector stops tracking one of strings, bytes and such tuples.
"""

Version: TypeAlias = tuple[str, str]
"""UID and resource version: what tells a state of an object from all others."""

Entry: TypeAlias = tuple[str, Record]
"""A key and its record."""


class Delta:
    """What became of one object: added (`old` is None), updated, or deleted (`new` is None).

    Attributes:
        is_addition: Whether the object was not in the store.
        is_deletion: Whether the object is not in the store any more.
        initial: Whether it is the addition of what was there at the start.
        resync: Whether nothing changed and this is only a resync.
        final_state_unknown: Whether it is a deletion that was not seen; `old` may be older than the last state then.
    """

    __slots__ = (
        *("_after", "_before", "_new", "_old"),
        *("final_state_unknown", "initial", "is_addition", "is_deletion", "key", "resync"),
    )

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
        self.is_addition = before is None
        self.is_deletion = after is None
        self.initial = False
        self.resync = False
        self.final_state_unknown = False
        self._before = before
        self._after = after
        self._old = old
        self._new = new

    def apart(self) -> Delta:
        """Return the same for whoever keeps it, or reads it in another thread: with trees of its own."""
        last = copy_json(self._old) if self.is_deletion and self._old is not None else None
        own = Delta(self.key, self._before, self._after, old=last)
        own.initial, own.resync, own.final_state_unknown = self.initial, self.resync, self.final_state_unknown
        return own

    @property
    def version(self) -> Version | None:
        """What tells the state after from all others; None of a deletion."""
        return None if self._after is None else self._after[:2]

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

    def statuses(self) -> tuple[JsonObject, JsonObject] | None:
        """Return the statuses before and after, if nothing but these and the version of an object changed.

        None: something else did, or nobody can tell without decoding both states, which is what this spares.
        """
        if self._before is None or self._after is None:
            return None
        try:
            (head, status), (new_head, new_status) = _split(self._before), _split(self._after)
        except orjson.JSONDecodeError:
            return None  # what was found is no status of the object: it has none, or not at its end
        return (status, new_status) if head == new_head else None

    @property
    def size(self) -> int:
        """Bytes that reading it may decode."""
        return sum(len(record[2]) for record in (self._before, self._after) if record is not None)


_STATUS: Final = b',"status":{'


def _split(record: Record) -> tuple[bytes, JsonObject]:
    """Split a body into what stands before the status, without the resource version, and the status.

    Quotes within strings are escaped, so these keys are found where they are some.

    Raises:
        orjson.JSONDecodeError: The last thing of that name is no status that ends the body.
    """
    _, version, body, _ = record
    start = body.rfind(_STATUS)
    # Behind one that is deeper within the object there is more than the bracket at the end.
    head, status = (body[:-1], {}) if start < 0 else (body[:start], orjson.loads(body[start + len(_STATUS) - 1 : -1]))
    return head.replace(b'"resourceVersion":"%b"' % version.encode(), b"", 1), status


ResourceEventHandler: TypeAlias = Callable[[Delta], object]
"""Gets each delta; what it does not read is not decoded. Synchronous and quick: it puts keys into queues."""
