"""`metadata.managedFields` as a mapping from managers to the sets of fields that they own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

from trainmaster.devcluster.apiserver.apply.fieldset import FieldSet, FieldsInvalid
from trainmaster.devcluster.apiserver.errors import quote
from trainmaster.runtime.jsontree import JsonObject

Operation: TypeAlias = Literal["Apply", "Update"]

MAX_UPDATERS = 10  # the limit of the Kubernetes API server
ANCIENT = "ancient-changes"
"""The manager to which the oldest updates are attributed once there are more than `MAX_UPDATERS`."""


class Manager(NamedTuple):
    """What tells entries of managedFields apart. The version of an applier is not part of its identity."""

    name: str
    operation: Operation
    version: str
    subresource: str

    @classmethod
    def of(cls, name: str, operation: Operation, api_version: str, subresource: str) -> Manager:
        """Build the identity of a manager."""
        return cls(name, operation, api_version if operation == "Update" else "", subresource)

    def __str__(self) -> str:
        text = quote(self.name)
        if self.subresource:
            text += f" with subresource {quote(self.subresource)}"
        return f"{text} using {self.version}" if self.operation == "Update" else text


class VersionedSet(NamedTuple):
    """One entry of managedFields, without the identity of its manager."""

    api_version: str
    time: str
    fields: FieldSet


ManagedFields: TypeAlias = dict[Manager, VersionedSet]


def decode(entries: Iterable[Any]) -> ManagedFields:
    """Read managedFields that a client sent; raises `FieldsInvalid` for anything that is not a proper entry."""
    managed: ManagedFields = {}
    for number, entry in enumerate(entries):
        try:
            manager, versioned = _decode_entry(entry)
        except FieldsInvalid as error:
            raise FieldsInvalid(f"metadata.managedFields[{number}]: {error}") from None
        managed[manager] = versioned
    return managed


def load(entries: Iterable[JsonObject]) -> ManagedFields:
    """Read managedFields that come from the store, which have been checked on their way in."""
    return {
        Manager.of(
            entry["manager"], entry["operation"], entry["apiVersion"], entry.get("subresource", "")
        ): VersionedSet(entry["apiVersion"], entry.get("time", ""), FieldSet(entry["fieldsV1"]))
        for entry in entries
    }


def encode(managed: ManagedFields) -> list[JsonObject]:
    """Write managedFields: appliers first, then by time and name; managers of nothing are left out."""
    entries = []
    for manager, versioned in sorted(managed.items(), key=_position):
        if versioned.fields:
            entry: JsonObject = {"manager": manager.name, "operation": manager.operation}
            entry["apiVersion"] = versioned.api_version
            if versioned.time:
                entry["time"] = versioned.time
            entry["fieldsType"] = "FieldsV1"
            entry["fieldsV1"] = versioned.fields.encode()
            if manager.subresource:
                entry["subresource"] = manager.subresource
            entries.append(entry)
    return entries


def cap_updaters(managed: ManagedFields) -> None:
    """Attribute the oldest updates to `ANCIENT` until no more than `MAX_UPDATERS` entries are of updates."""
    updaters = [manager for manager, versioned in managed.items() if manager.operation == "Update" and versioned.fields]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return
    candidates = sorted((manager for manager in updaters if manager.name != ANCIENT), key=lambda it: managed[it].time)
    for manager in candidates:
        old = managed.pop(manager)
        ancient = Manager.of(ANCIENT, "Update", old.api_version, "")
        if ancient in managed:
            excess -= 1
            old = old._replace(time=max(old.time, managed[ancient].time), fields=managed[ancient].fields | old.fields)
        managed[ancient] = old
        if excess == 0:
            return


def _position(item: tuple[Manager, VersionedSet]) -> tuple[str, ...]:
    manager, versioned = item
    return manager.operation, versioned.time, manager.name, versioned.api_version, manager.subresource


def _decode_entry(entry: Any) -> tuple[Manager, VersionedSet]:
    if not isinstance(entry, dict):
        raise FieldsInvalid("an entry must be an object with manager, operation, apiVersion and fieldsV1")
    operation = entry.get("operation")
    if operation not in {"Apply", "Update"}:
        raise FieldsInvalid("the operation must be Apply or Update")
    if entry.get("fieldsType") != "FieldsV1":
        raise FieldsInvalid("the fieldsType must be FieldsV1")
    texts = [entry.get(name) or "" for name in ("manager", "apiVersion", "time", "subresource")]
    if not all(isinstance(text, str) for text in texts):
        raise FieldsInvalid("manager, apiVersion, time and subresource must be strings")
    name, api_version, time, subresource = texts
    fields = FieldSet.decode(entry.get("fieldsV1") or {})
    return Manager.of(name, operation, api_version, subresource), VersionedSet(api_version, time, fields)
