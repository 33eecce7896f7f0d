"""What the store holds and tells: records of objects, their keys, and events.

Everything here is immutable. The trees inside are shared by the store, its history and all readers: never mutate one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, cast

import orjson

from trainmaster.devcluster.apiserver.resources import GroupResource
from trainmaster.runtime.jsontree import JsonObject

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
"""What happened to an object."""


class ObjectKey(NamedTuple):
    """Where an object lives; the namespace of a cluster-scoped object is the empty string."""

    resource: GroupResource
    namespace: str
    name: str


class Record:
    """One version of one object: the tree, the revision that wrote it, and its JSON, encoded at most once."""

    __slots__ = ("_json", "object", "revision")

    def __init__(self, object: JsonObject, revision: int) -> None:  # noqa: A002 - the API's own word for it
        self.object = object
        self.revision = revision
        self._json: bytes | None = None

    @property
    def json(self) -> bytes:
        """The object as JSON bytes; the journal and all watchers share one encoding."""
        if self._json is None:
            self._json = orjson.dumps(self.object)
        return self._json

    @property
    def metadata(self) -> JsonObject:
        """The object's metadata."""
        return cast("JsonObject", self.object["metadata"])

    def __repr__(self) -> str:
        return f"Record({self.metadata.get('namespace', '')}/{self.metadata.get('name')} at revision {self.revision})"


@dataclass(frozen=True, slots=True)
class Event:
    """A committed change. The record of a DELETED event is the last state, with the revision of the deletion."""

    type: EventType
    key: ObjectKey
    record: Record
    previous: Record | None
    revision: int
