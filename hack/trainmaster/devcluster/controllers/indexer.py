"""Reads and deletions for controllers, and an indexer: objects by a value that is computed from each.

- An object that is not there is an answer, not an error.
- The store reports every change synchronously, so an indexer is never behind a read of the store: controllers need
  neither expectations nor full lists.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, DeleteOptions
from trainmaster.devcluster.apiserver.registry.options import Propagation
from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.objects import controller_of
from trainmaster.runtime.jsontree import JsonObject


def find(api: Api, key: ObjectKey) -> JsonObject | None:
    """Return the object as it is stored; None if there is none."""
    record = api.store.get(key)
    return None if record is None else record.object


async def delete(
    api: Api,
    resource: GroupResource,
    obj: JsonObject,
    *,
    propagation: Propagation = "Background",
) -> bool:
    """Delete exactly this object, not a namesake of it; tells whether there was still something to delete."""
    metadata = obj["metadata"]
    options = DeleteOptions(propagation=propagation, uid=metadata["uid"])
    try:
        await api.delete(resource, metadata.get("namespace"), metadata["name"], options=options)
    except StatusError as error:
        if error.code == 404 or (error.code == 409 and not _is_same(api, resource, obj)):
            return False
        raise
    return True


def _is_same(api: Api, resource: GroupResource, obj: JsonObject) -> bool:
    metadata = obj["metadata"]
    current = find(api, ObjectKey(resource, metadata.get("namespace", ""), metadata["name"]))
    return current is not None and current["metadata"]["uid"] == metadata["uid"]


_Value = TypeVar("_Value", bound=Hashable)


class Indexer(Generic[_Value]):
    """Objects by indexed value; feed it by `ControlLoop.watch(resource, indexer.observe)`.

    Args:
        index_func: Computes the value of an object, or a list of them; objects without one (None) are not indexed.
    """

    def __init__(self, index_func: Callable[[JsonObject], _Value | list[_Value] | None]) -> None:
        self._index_func = index_func
        self._objects: dict[_Value, dict[ObjectKey, JsonObject]] = {}

    def observe(self, event: Event) -> None:
        """Take in a change."""
        for record in (event.previous, event.record):
            for value in () if record is None else self._values(record.object):
                indexed = self._objects.get(value, {})
                indexed.pop(event.key, None)
                if not indexed:
                    self._objects.pop(value, None)
        for value in () if event.type == "DELETED" else self._values(event.record.object):
            self._objects.setdefault(value, {})[event.key] = event.record.object

    def _values(self, obj: JsonObject) -> Sequence[_Value]:
        value = self._index_func(obj)
        return value if isinstance(value, list) else () if value is None else (value,)

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
