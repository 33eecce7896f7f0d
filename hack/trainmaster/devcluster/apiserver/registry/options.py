"""Options of requests, and the ways to patch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from trainmaster.runtime.jsontree import JsonObject

Patch: TypeAlias = bytes | JsonObject | list[Any]
"""The body of a PATCH request: decoded, or as JSON bytes."""

FieldValidation: TypeAlias = Literal["Strict", "Warn", "Ignore"]
"""What happens to fields that the schema does not know: refused, dropped with a warning, or dropped."""

Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]
"""What happens to the dependents of a deleted object."""


class PatchType(StrEnum):
    """The media types of PATCH requests."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of create, update and patch; `warnings` collects what the client is warned of."""

    field_manager: str = "unknown"
    force: bool = False
    dry_run: bool = False
    field_validation: FieldValidation = "Warn"
    strict_error: str = ""
    """What strict validation refuses in the body whatever the kind says of it: fields that it repeats."""

    user: JsonObject | None = None
    """Who writes, as reviews show it; None: a part of the cluster in this process."""

    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """Options of delete; `uid` and `resource_version` are preconditions, no propagation means the kind's default.

    `user` and `warnings` are as in `WriteOptions`.
    """

    propagation: Propagation | None = None
    grace_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False
    user: JsonObject | None = None
    warnings: list[str] = field(default_factory=list)
