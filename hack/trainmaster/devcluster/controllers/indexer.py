"""An indexer: objects by a value that is computed from each, kept current by the store itself.

The store reports every change synchronously, so an indexer is never behind a read of the store: controllers need
neither expectations nor full lists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.objects import controller_of
from trainmaster.runtime.jsontree import JsonObject

_Value = TypeVar("_Value", bound=Hashable)


class Indexer(Generic[_Value]):
    """Objects by indexed value; feed it by `ControlLoop.watch(resource, indexer.observe)`.

    Args:
        index_func: Computes the value of an object; objects without one (None) are not indexed.
    """

    def __init__(self, index_func: Callable[[JsonObject], _Value | None]) -> None:
        self._index_func = index_func
        self._objects: dict[_Value, dict[ObjectKey, JsonObject]] = {}

    def observe(self, event: Event) -> None:
        """Take in a change."""
        for record in (event.previous, event.record):
            value = None if record is None else self._index_func(record.object)
            if value is not None:
                indexed = self._objects.get(value, {})
                indexed.pop(event.key, None)
                if not indexed:
                    self._objects.pop(value, None)
        value = self._index_func(event.record.object)
        if event.type != "DELETED" and value is not None:
            self._objects.setdefault(value, {})[event.key] = event.record.object

    def by_index(self, value: _Value) -> list[JsonObject]:
        """Return the objects with an indexed value, by name."""
        indexed = self._objects.get(value, {})
        return [indexed[key] for key in sorted(indexed)]


def controller_uid(obj: JsonObject) -> str | None:
    """Return the uid of the managing controller of an object: the index function for children."""
    owner = controller_of(obj)
    if owner is None:
        return None
    uid: str = owner["uid"]
    return uid
