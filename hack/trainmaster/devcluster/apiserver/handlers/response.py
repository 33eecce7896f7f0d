"""Response encoding: objects in the form that was negotiated, which is whole, as tables, or only their metadata.

Guarantees:
- whole objects are never encoded twice: the bytes come from the record, except for the members of built-in lists,
  which have no kind of their own;
- nothing here changes a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

import orjson

from trainmaster.devcluster.apiserver.http.negotiation import MediaTypeOptions
from trainmaster.devcluster.apiserver.registry import Column, Kind
from trainmaster.devcluster.apiserver.storage import Record
from trainmaster.runtime.jsontree import JsonObject

IncludeObject: TypeAlias = Literal["None", "Metadata", "Object"]
"""What a row of a table carries beside its cells."""


@dataclass(frozen=True, slots=True)
class ResponseEncoder:
    """Encodes objects of one kind in the form that was negotiated for one request."""

    kind: Kind
    media_type: MediaTypeOptions
    include: IncludeObject
    clock: Callable[[], datetime]
    """Read for each row: a watch outlives the moment of its request, and ages grow."""

    def object(self, obj: JsonObject) -> bytes:
        """Encode a single object."""
        if self.media_type.is_table:
            table = self._table({"resourceVersion": obj["metadata"].get("resourceVersion", "")})
            return orjson.dumps({**table, "columnDefinitions": self._column_definitions(), "rows": [self._row(obj)]})
        return orjson.dumps(self._metadata_only(obj) if self.media_type.is_metadata else obj)

    def list_item(self, record: Record) -> bytes:
        """Encode an object as one of the members of a list."""
        if self.media_type.is_table:
            return orjson.dumps(self._row(record.object))
        if self.media_type.is_metadata:
            return orjson.dumps(self._metadata_only(record.object))
        return record.json if self.kind.custom else orjson.dumps(without_type(record.object))

    def watch_event(self, record: Record, *, first: bool) -> bytes:
        """Encode the object of a watch event; a table describes its columns in the first one only."""
        if not self.media_type.is_table:
            return orjson.dumps(self._metadata_only(record.object)) if self.media_type.is_metadata else record.json
        table = self._table({"resourceVersion": record.metadata["resourceVersion"]})
        columns = self._column_definitions() if first else None
        return orjson.dumps({**table, "columnDefinitions": columns, "rows": [self._row(record.object)]})

    def bookmark(self, metadata: JsonObject) -> bytes:
        """Encode a bookmark: an object that is nothing but its metadata."""
        if self.media_type.is_table:
            return orjson.dumps({**self._table(metadata), "columnDefinitions": None, "rows": []})
        if self.media_type.is_metadata:
            return orjson.dumps(self._metadata_only({"metadata": metadata}))
        return orjson.dumps({"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": metadata})

    def list_frame(self, metadata: JsonObject) -> tuple[bytes, bytes]:
        """Return what stands before and behind the members of a list."""
        if self.media_type.is_table:
            return _opened({**self._table(metadata), "columnDefinitions": self._column_definitions()}, "rows")
        if self.media_type.is_metadata:
            head = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": self.media_type.api_version,
                "metadata": metadata,
            }
            return _opened(head, "items")
        head = {"kind": self.kind.list_kind or f"{self.kind.kind}List", "apiVersion": self.kind.api_version}
        return _opened({**head, "metadata": metadata}, "items")

    def _table(self, metadata: JsonObject) -> JsonObject:
        return {"kind": "Table", "apiVersion": self.media_type.api_version, "metadata": metadata}

    def _column_definitions(self) -> list[JsonObject]:
        return [_definition(column) for column in self.kind.columns]

    def _row(self, obj: JsonObject) -> JsonObject:
        now = self.clock()
        row: JsonObject = {"cells": [column.cell(obj, now) for column in self.kind.columns]}
        if self.include == "Metadata":
            row["object"] = self._metadata_only(obj)
        elif self.include == "Object":
            row["object"] = obj
        return row

    def _metadata_only(self, obj: JsonObject) -> JsonObject:
        return {"kind": "PartialObjectMetadata", "apiVersion": self.media_type.api_version, "metadata": obj["metadata"]}


def without_type(obj: JsonObject) -> JsonObject:
    """Return an object of a built-in kind as a member of a list, whose kind says what its members are."""
    return {field: value for field, value in obj.items() if field not in ("apiVersion", "kind")}


def _definition(column: Column) -> JsonObject:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _opened(head: JsonObject, member: str) -> tuple[bytes, bytes]:
    """Encode an object up to the opening bracket of its last member, a list."""
    return orjson.dumps(head)[:-1] + f',"{member}":['.encode(), b"]}"
