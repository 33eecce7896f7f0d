"""The field manager: server-side apply and the tracking of updates, as pure functions from objects to objects.

- Inputs are never changed. Results are fresh trees, except for the entries of managedFields, which are shared.
- An apply that changes nothing returns an object equal to the stored one: same entries, same times.
- The caller validates the object, checks preconditions (uid, resourceVersion), and takes away what the endpoint
  ignores: the status on the main endpoint of a kind that has a status subresource. With `subresource="status"`
  nothing but the status of an applied object counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from trainmaster.devcluster.apiserver.apply import managedfields
from trainmaster.devcluster.apiserver.apply.compare import Comparison, compare, to_fieldset
from trainmaster.devcluster.apiserver.apply.fieldset import FieldSet, FieldsInvalid
from trainmaster.devcluster.apiserver.apply.managedfields import ManagedFields, Manager, VersionedSet
from trainmaster.devcluster.apiserver.apply.merge import merge, remove
from trainmaster.devcluster.apiserver.apply.typed import UNTRACKED_FIELDS, UNTRACKED_METADATA, object_schema
from trainmaster.devcluster.apiserver.schema import Schema
from trainmaster.runtime.jsontree import JsonObject, copy_tree

BEFORE_FIRST_APPLY = "before-first-apply"
"""The manager that owns what an object without managedFields holds when it is applied for the first time."""


def apply(
    live: JsonObject | None,
    applied: JsonObject,
    *,
    manager: str,
    force: bool,
    schema: Schema,
    api_version: str,
    now: str,
    subresource: str = "",
) -> JsonObject:
    """Apply an object onto the stored one (None: there is none) and return the result with its managedFields.

    Raises `ApplyConflict` without `force` where others own what would change, and `ApplyInvalid` where elements of a
    list have no keys or the same keys.
    """
    typed = object_schema(schema)
    wanted = _tracked(applied)
    if subresource == "status":
        wanted = {name: value for name, value in wanted.items() if name == "status"}
    before = _tracked(live or {})
    identity = Manager.of(manager, "Apply", api_version, subresource)
    managed = _managed_before_apply(live, before, typed, api_version=api_version, now=now)

    stated = to_fieldset(wanted, typed)
    after = merge(before, wanted, typed)
    last = managed.pop(identity, None)
    if last is not None and (dropped := last.fields - stated):
        kept = stated
        for other in managed.values():
            kept |= other.fields
        after = remove(after, dropped, kept, typed)

    if live is not None and last is not None and after == before and stated == last.fields:
        unchanged: JsonObject = copy_tree(live)
        return unchanged
    difference = compare(before, after, typed)
    if not force and (conflicts := find_conflicts(managed, difference.written)):
        raise ApplyConflict(conflicts)
    _release(managed, difference)
    managed[identity] = VersionedSet(api_version, now, stated)
    return _assembled(live, applied, after, managed)


def update(
    old: JsonObject | None,
    new: JsonObject,
    *,
    manager: str,
    schema: Schema,
    api_version: str,
    now: str,
    subresource: str = "",
) -> JsonObject:
    """Return the new object with the managedFields that follow from the change from the old one (None: created).

    A client may edit managedFields itself: what it sends counts if it can be read, and `[]` or `[{}]` forgets all
    managers. An object whose managers were forgotten is not tracked until it is applied.
    """
    stored = _entries(old)
    sent = _entries(new)
    if sent == [{}] or new.get("metadata", {}).get("managedFields") == []:
        return _with_entries(new, [])
    entries = stored
    if sent and sent != stored:
        try:
            managed = managedfields.decode(sent)
            entries = sent
        except FieldsInvalid:
            managed = managedfields.load(stored)
    else:
        managed = managedfields.load(stored)
    if old is not None and not managed:
        return _with_entries(new, [])

    difference = compare(_tracked(old or {}), _tracked(new), object_schema(schema))
    if not difference.written and not difference.removed:
        return _with_entries(new, entries)
    _release(managed, difference)
    if difference.written:
        identity = Manager.of(manager, "Update", api_version, subresource)
        previous = managed.get(identity)
        fields = difference.written | previous.fields if previous else difference.written
        managed[identity] = VersionedSet(api_version, now, fields)
    managedfields.cap_updaters(managed)
    return _with_entries(new, managedfields.encode(managed))


def _managed_before_apply(
    live: JsonObject | None, tracked: JsonObject, schema: Schema, *, api_version: str, now: str
) -> ManagedFields:
    managed = managedfields.load(_entries(live))
    if not managed and tracked:
        fields = compare({}, tracked, schema).written
        managed[Manager.of(BEFORE_FIRST_APPLY, "Update", api_version, "")] = VersionedSet(api_version, now, fields)
    return managed


def _release(managed: ManagedFields, difference: Comparison) -> None:
    """Take what was written or removed from everyone who owned it."""
    for other, entry in managed.items():
        fields = entry.fields - difference.written - difference.removed
        if fields is not entry.fields:
            managed[other] = entry._replace(fields=fields)


def _tracked(obj: JsonObject) -> JsonObject:
    """Return what is tracked of an object: everything but its identity and what the server fills in."""
    tracked = {name: value for name, value in obj.items() if name not in UNTRACKED_FIELDS}
    metadata = tracked.pop("metadata", None) or {}
    if metadata := {name: value for name, value in metadata.items() if name not in UNTRACKED_METADATA}:
        tracked["metadata"] = metadata
    return tracked


def _assembled(live: JsonObject | None, applied: JsonObject, tracked: JsonObject, managed: ManagedFields) -> JsonObject:
    """Put identity and server-side metadata back around the merged fields; the stored object's are authoritative."""
    source = live if live is not None else applied
    merged: JsonObject = {name: applied[name] for name in ("apiVersion", "kind") if name in applied}
    metadata = {
        name: value
        for name, value in (source.get("metadata") or {}).items()
        if name in UNTRACKED_METADATA and value is not None
    }
    merged["metadata"] = {**metadata, **tracked.get("metadata", {})}
    merged.update((name, value) for name, value in tracked.items() if name != "metadata")
    return _with_entries(copy_tree(merged), managedfields.encode(managed))


def _entries(obj: JsonObject | None) -> list[Any]:
    metadata = (obj or {}).get("metadata") or {}
    return metadata.get("managedFields") or []


def _with_entries(obj: JsonObject, entries: list[Any]) -> JsonObject:
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    if entries:
        metadata["managedFields"] = entries
    return {**obj, "metadata": metadata}


class Conflict(NamedTuple):
    """A field that an apply wants to change and that another manager owns."""

    manager: Manager
    api_version: str
    time: str
    path: str

    def cause(self) -> JsonObject:
        """Return the entry for `details.causes` of a Status."""
        return {"reason": "FieldManagerConflict", "message": f"conflict with {self.manager}", "field": self.path}


class ApplyConflict(Exception):
    """An apply without force that would change fields of other managers; its text is the message for the client."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        self.conflicts = list(conflicts)
        super().__init__(_message(self.conflicts))

    def causes(self) -> list[JsonObject]:
        """Return `details.causes` of a Status."""
        return [conflict.cause() for conflict in self.conflicts]


def _message(conflicts: list[Conflict]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {conflicts[0].manager}: {conflicts[0].path}"
    lines: list[str] = []
    for manager in dict.fromkeys(conflict.manager for conflict in conflicts):
        lines.append(f"conflicts with {manager}:")
        lines.extend(f"- {conflict.path}" for conflict in conflicts if conflict.manager == manager)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def find_conflicts(managed: ManagedFields, written: FieldSet) -> list[Conflict]:
    """Return the fields among the written ones that managers own; the managers do not include the one that writes."""
    return [
        Conflict(manager, versioned.api_version, versioned.time, path)
        for manager, versioned in sorted(managed.items())
        for path in (versioned.fields & written).paths()
    ]
