"""Server-side apply and the tracking of updates, as pure functions from objects to objects.

- Inputs are never changed. Results are fresh trees, except for the entries of managedFields, which are shared.
- An apply that changes nothing returns an object equal to the stored one: same entries, same times.
- The caller validates the object, checks preconditions (uid, resourceVersion), and takes away what the endpoint
  ignores: the status on the main endpoint of a kind that has a status subresource. With `subresource="status"`
  nothing but the status of an applied object counts.
"""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.apply import owners as ownership
from trainmaster.devcluster.apiserver.apply.compare import Changes, applied_fields, changes
from trainmaster.devcluster.apiserver.apply.elements import UNTRACKED_FIELDS, UNTRACKED_METADATA, object_schema
from trainmaster.devcluster.apiserver.apply.fieldset import FieldSet, FieldsInvalid
from trainmaster.devcluster.apiserver.apply.merge import merge, remove
from trainmaster.devcluster.apiserver.apply.owners import ApplyConflict, Conflict, Owner, Owners, Ownership
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
    owner = Owner.of(manager, "Apply", api_version, subresource)
    owners = _owners_before_apply(live, before, typed, api_version=api_version, now=now)

    stated = applied_fields(wanted, typed)
    after = merge(before, wanted, typed)
    last = owners.pop(owner, None)
    if last is not None and (dropped := last.fields - stated):
        kept = stated
        for other in owners.values():
            kept |= other.fields
        after = remove(after, dropped, kept, typed)

    if live is not None and last is not None and after == before and stated == last.fields:
        unchanged: JsonObject = copy_tree(live)
        return unchanged
    difference = changes(before, after, typed)
    if not force and (conflicts := _conflicts(owners, difference.written)):
        raise ApplyConflict(conflicts)
    _release(owners, difference)
    owners[owner] = Ownership(api_version, now, stated)
    return _assembled(live, applied, after, owners)


def track_update(
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

    A client may edit managedFields itself: what it sends counts if it can be read, an empty list is not an edit, and
    `[{}]` forgets all owners. An object whose owners were forgotten is not tracked until it is applied.
    """
    stored = _entries(old)
    sent = _entries(new)
    if sent == [{}]:
        return _with_entries(new, [])
    entries = stored
    if sent and sent != stored:
        try:
            owners = ownership.decode(sent)
            entries = sent
        except FieldsInvalid:
            owners = ownership.load(stored)
    else:
        owners = ownership.load(stored)
    if old is not None and not owners:
        return _with_entries(new, [])

    difference = changes(_tracked(old or {}), _tracked(new), object_schema(schema))
    if not difference.written and not difference.removed:
        return _with_entries(new, entries)
    _release(owners, difference)
    if difference.written:
        owner = Owner.of(manager, "Update", api_version, subresource)
        previous = owners.get(owner)
        fields = difference.written | previous.fields if previous else difference.written
        owners[owner] = Ownership(api_version, now, fields)
    ownership.cap_updaters(owners)
    return _with_entries(new, ownership.encode(owners))


def _owners_before_apply(
    live: JsonObject | None, tracked: JsonObject, schema: Schema, *, api_version: str, now: str
) -> Owners:
    owners = ownership.load(_entries(live))
    if not owners and tracked:
        fields = changes({}, tracked, schema).written
        owners[Owner.of(BEFORE_FIRST_APPLY, "Update", api_version, "")] = Ownership(api_version, now, fields)
    return owners


def _conflicts(owners: Owners, written: FieldSet) -> list[Conflict]:
    return [
        Conflict(owner, entry.api_version, entry.time, path)
        for owner, entry in sorted(owners.items())
        for path in (entry.fields & written).paths()
    ]


def _release(owners: Owners, difference: Changes) -> None:
    """Take what was written or removed from everyone who owned it."""
    for owner, entry in owners.items():
        fields = entry.fields - difference.written - difference.removed
        if fields is not entry.fields:
            owners[owner] = entry._replace(fields=fields)


def _tracked(obj: JsonObject) -> JsonObject:
    """Give what is tracked of an object: everything but its identity and what the server fills in."""
    tracked = {name: value for name, value in obj.items() if name not in UNTRACKED_FIELDS}
    metadata = tracked.pop("metadata", None) or {}
    if metadata := {name: value for name, value in metadata.items() if name not in UNTRACKED_METADATA}:
        tracked["metadata"] = metadata
    return tracked


def _assembled(live: JsonObject | None, applied: JsonObject, tracked: JsonObject, owners: Owners) -> JsonObject:
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
    return _with_entries(copy_tree(merged), ownership.encode(owners))


def _entries(obj: JsonObject | None) -> list[Any]:
    metadata = (obj or {}).get("metadata") or {}
    return metadata.get("managedFields") or []


def _with_entries(obj: JsonObject, entries: list[Any]) -> JsonObject:
    metadata = {name: value for name, value in (obj.get("metadata") or {}).items() if name != "managedFields"}
    if entries:
        metadata["managedFields"] = entries
    return {**obj, "metadata": metadata}
