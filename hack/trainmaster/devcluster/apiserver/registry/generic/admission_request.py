"""AdmissionRequest, and the interface of admission: what may change or refuse the writes of all kinds, as webhooks do.

`Api` gives every write to one `Admission`: whether it handles such writes (cheap, for every request), then to mutate
the new object before it is validated, and to validate the object that would be stored.
In-process rules of one resource are `AdmissionHook`s of the registry; they run after the mutation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from trainmaster.devcluster.apiserver.registry import Kind
from trainmaster.devcluster.apiserver.registry.options import DeleteOptions, WriteOptions
from trainmaster.devcluster.apiserver.resources import NAMESPACES
from trainmaster.runtime.jsontree import JsonObject

AdmissionOperation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE"]
"""What is done to the object."""

Reshape: TypeAlias = Callable[[JsonObject], JsonObject]
"""Brings an object that was changed from outside into the shape of its kind again: a copy, pruned and with defaults."""

API_SERVER_USER: JsonObject = {"username": "system:apiserver", "groups": ["system:masters", "system:authenticated"]}
"""The user on whose behalf the parts of the cluster in this process write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """Everything about a write but the new object."""

    kind: Kind
    operation: AdmissionOperation
    subresource: str
    namespace: str
    name: str
    old: JsonObject | None
    options: JsonObject
    dry_run: bool
    user: JsonObject
    warnings: list[str]
    """Warnings for the client are added here."""


class Admission(Protocol):
    """Changes and refuses writes; a refusal is a `StatusError`."""

    def handles(self, kind: Kind, operation: AdmissionOperation, subresource: str) -> bool:
        """Return whether writes like this may have to be looked at; called for each of them."""

    async def mutate(self, request: AdmissionRequest, obj: JsonObject, *, reshape: Reshape) -> JsonObject:
        """Return the object to go on with; it may be changed in place. Only for operations with a new object."""

    async def validate(self, request: AdmissionRequest, obj: JsonObject | None) -> None:
        """Judge the object as it would be stored, which must not be changed; None for a deletion."""


def write_request(
    kind: Kind, obj: JsonObject, old: JsonObject | None, *, subresource: str, options: WriteOptions
) -> AdmissionRequest:
    """Describe a creation, or a change of `old`."""
    metadata = obj["metadata"]
    creating = old is None
    described: JsonObject = {
        "kind": "CreateOptions" if creating else "UpdateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "fieldManager": options.field_manager,
        "fieldValidation": options.field_validation,
    }
    if options.dry_run:
        described["dryRun"] = ["All"]
    name = metadata.get("name", "")
    return AdmissionRequest(
        kind=kind,
        operation="CREATE" if creating else "UPDATE",
        subresource=subresource,
        namespace=_namespace(kind, metadata, name),
        name=name,
        old=old,
        options=described,
        dry_run=options.dry_run,
        user=options.user or API_SERVER_USER,
        warnings=options.warnings,
    )


def deletion_request(kind: Kind, old: JsonObject, options: DeleteOptions) -> AdmissionRequest:
    """Describe a deletion."""
    described: JsonObject = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    if given := {key: value for key, value in preconditions.items() if value is not None}:
        described["preconditions"] = given
    if options.grace_seconds is not None:
        described["gracePeriodSeconds"] = options.grace_seconds
    if options.propagation is not None:
        described["propagationPolicy"] = options.propagation
    if options.dry_run:
        described["dryRun"] = ["All"]
    metadata = old["metadata"]
    return AdmissionRequest(
        kind=kind,
        operation="DELETE",
        subresource="",
        namespace=_namespace(kind, metadata, metadata["name"]),
        name=metadata["name"],
        old=old,
        options=described,
        dry_run=options.dry_run,
        user=options.user or API_SERVER_USER,
        warnings=options.warnings,
    )


def _namespace(kind: Kind, metadata: JsonObject, name: str) -> str:
    """Return the namespace of a request; requests for a namespace count as being in it."""
    if kind.resource == NAMESPACES:
        return name
    return metadata.get("namespace", "") if kind.namespaced else ""
