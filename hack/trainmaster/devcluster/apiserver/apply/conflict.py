"""Conflicts of server-side apply: fields that one manager wants to change and that others own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainmaster.devcluster.apiserver.apply.fieldset import FieldSet
from trainmaster.devcluster.apiserver.apply.managedfields import ManagedFields, Manager
from trainmaster.runtime.jsontree import JsonObject


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
