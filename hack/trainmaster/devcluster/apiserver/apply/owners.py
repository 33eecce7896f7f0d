"""Who owns what: `metadata.managedFields` as a mapping from owners to field sets, and conflicts between owners."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from trainmaster.devcluster.apiserver.apply.fieldset import FieldSet, FieldsInvalid
from trainmaster.devcluster.apiserver.errors import quote
from trainmaster.runtime.jsontree import JsonObject

Operation: TypeAlias = Literal["Apply", "Update"]

MAX_UPDATERS = 10  # the limit of the Kubernetes API server
ANCIENT = "ancient-changes"
"""The manager to which the oldest updates are attributed once there are more than `MAX_UPDATERS`."""


class Owner(NamedTuple):
    """What tells entries of managedFields apart. The version of an applier is not part of its identity."""

    manager: str
    operation: Operation
    version: str
    subresource: str

    @classmethod
    def of(cls, manager: str, operation: Operation, api_version: str, subresource: str) -> Owner:
        """Build the identity of an owner."""
        return cls(manager, operation, api_version if operation == "Update" else "", subresource)

    def __str__(self) -> str:
        text = quote(self.manager)
        if self.subresource:
            text += f" with subresource {quote(self.subresource)}"
        return f"{text} using {self.version}" if self.operation == "Update" else text


class Ownership(NamedTuple):
    """One entry of managedFields, without the identity of its owner."""

    api_version: str
    time: str
    fields: FieldSet


Owners: TypeAlias = dict[Owner, Ownership]


class Conflict(NamedTuple):
    """A field that an apply wants to change and that somebody else owns."""

    owner: Owner
    api_version: str
    time: str
    path: str

    @property
    def manager(self) -> str:
        """The name of the manager that owns the field."""
        return self.owner.manager

    def cause(self) -> JsonObject:
        """Return the entry for `details.causes` of a Status."""
        return {"reason": "FieldManagerConflict", "message": f"conflict with {self.owner}", "field": self.path}


class ApplyConflict(Exception):
    """An apply without force that would change fields of other owners; its text is the message for the client."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        self.conflicts = list(conflicts)
        super().__init__(_message(self.conflicts))

    def causes(self) -> list[JsonObject]:
        """Return `details.causes` of a Status."""
        return [conflict.cause() for conflict in self.conflicts]


def _message(conflicts: list[Conflict]) -> str:
    if len(conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {conflicts[0].owner}: {conflicts[0].path}"
    lines: list[str] = []
    for owner in dict.fromkeys(conflict.owner for conflict in conflicts):
        lines.append(f"conflicts with {owner}:")
        lines.extend(f"- {conflict.path}" for conflict in conflicts if conflict.owner == owner)
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)


def decode(entries: Iterable[Any]) -> Owners:
    """Read managedFields that a client sent; raises `FieldsInvalid` for anything that is not a proper entry."""
    owners: Owners = {}
    for number, entry in enumerate(entries):
        try:
            owner, ownership = _decode_entry(entry)
        except FieldsInvalid as error:
            raise FieldsInvalid(f"metadata.managedFields[{number}]: {error}") from None
        owners[owner] = ownership
    return owners


def load(entries: Iterable[JsonObject]) -> Owners:
    """Read managedFields that come from the store, which have been checked on their way in."""
    return {
        Owner.of(entry["manager"], entry["operation"], entry["apiVersion"], entry.get("subresource", "")): Ownership(
            entry["apiVersion"], entry.get("time", ""), FieldSet(entry["fieldsV1"])
        )
        for entry in entries
    }


def encode(owners: Owners) -> list[JsonObject]:
    """Write managedFields: appliers first, then by time and name; owners of nothing are left out."""
    entries = []
    for owner, ownership in sorted(owners.items(), key=_position):
        if ownership.fields:
            entry: JsonObject = {"manager": owner.manager, "operation": owner.operation}
            entry["apiVersion"] = ownership.api_version
            if ownership.time:
                entry["time"] = ownership.time
            entry["fieldsType"] = "FieldsV1"
            entry["fieldsV1"] = ownership.fields.encode()
            if owner.subresource:
                entry["subresource"] = owner.subresource
            entries.append(entry)
    return entries


def cap_updaters(owners: Owners) -> None:
    """Attribute the oldest updates to `ANCIENT` until no more than `MAX_UPDATERS` entries are of updates."""
    updaters = [owner for owner, ownership in owners.items() if owner.operation == "Update" and ownership.fields]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return
    candidates = sorted((owner for owner in updaters if owner.manager != ANCIENT), key=lambda it: owners[it].time)
    for owner in candidates:
        old = owners.pop(owner)
        ancient = Owner.of(ANCIENT, "Update", old.api_version, "")
        if ancient in owners:
            excess -= 1
            old = old._replace(time=max(old.time, owners[ancient].time), fields=owners[ancient].fields | old.fields)
        owners[ancient] = old
        if excess == 0:
            return


def _position(item: tuple[Owner, Ownership]) -> tuple[str, ...]:
    owner, ownership = item
    return owner.operation, ownership.time, owner.manager, ownership.api_version, owner.subresource


def _decode_entry(entry: Any) -> tuple[Owner, Ownership]:
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
    manager, api_version, time, subresource = texts
    fields = FieldSet.decode(entry.get("fieldsV1") or {})
    return Owner.of(manager, operation, api_version, subresource), Ownership(api_version, time, fields)
