"""The metadata that all kinds share: what the server writes into it, and its rules.

The rules are those of names, labels, annotations, finalizers and owner references.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry.fields import not_negative
from trainmaster.devcluster.apiserver.registry.labels import labels, object_annotations
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import qualified_name

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_PREFIX_LIMIT = 63 - _SUFFIX_LENGTH

_GIVEN_BY_SERVER = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


def generated_name(prefix: str, chooser: random.Random) -> str:
    """Complete a `generateName` with a random suffix."""
    return prefix[:_PREFIX_LIMIT] + "".join(chooser.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))


def fill_system_fields(metadata: JsonObject, kind: Kind, *, uid: str, now: datetime) -> None:
    """Set what belongs to the server in the metadata of a new object; a generation that it does not count may stay."""
    for field in (*_GIVEN_BY_SERVER, "resourceVersion"):
        metadata.pop(field, None)
    _drop_empty(metadata)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = timestamp(now)
    if kind.strategy.has_generation or not metadata.get("generation"):
        metadata.pop("generation", None)
    if kind.strategy.has_generation:
        metadata["generation"] = 1


def restore_system_fields(metadata: JsonObject, old: JsonObject) -> None:
    """Fill in from the old object what the client left out and may not remove."""
    for field in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if field in old and not metadata.get(field):
            metadata[field] = old[field]
    # Whatever is sent: unlike the others, this one is ignored.
    metadata["creationTimestamp"] = old["creationTimestamp"]
    # The generation is counted by the server alone; a client's value is ignored rather than refused.
    metadata.pop("generation", None)
    if "generation" in old:
        metadata["generation"] = old["generation"]
    metadata.pop("selfLink", None)
    _drop_empty(metadata)


def _drop_empty(metadata: JsonObject) -> None:
    """Drop empty lists and maps, as the server does for custom resources, too: it holds metadata in typed form."""
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in metadata and not metadata[field]:
            del metadata[field]


_STANDARD_FINALIZERS = frozenset({"foregroundDeletion", "kubernetes", "orphan"})


def validate_object_meta(metadata: JsonObject, kind: Kind) -> list[FieldError]:
    """Check names, labels, annotations, finalizers and owner references."""
    return list(_metadata_errors(metadata, kind))


def _metadata_errors(metadata: JsonObject, kind: Kind) -> Iterator[FieldError]:
    prefix = metadata.get("generateName")
    if prefix:
        # What follows a dash at the end is not known yet, only that it can follow.
        tried = f"{prefix[:-2]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        for problem in kind.strategy.validate_name(tried):
            yield FieldError("metadata.generateName", "Invalid", prefix, problem)
    name = metadata.get("name")
    if not name:
        yield FieldError("metadata.name", "Required", detail="name or generateName is required")
    else:
        yield from (
            FieldError("metadata.name", "Invalid", name, problem) for problem in kind.strategy.validate_name(name)
        )
    yield from not_negative("metadata.generation", metadata.get("generation", 0))
    yield from labels("metadata.labels", metadata.get("labels") or {})
    yield from object_annotations("metadata.annotations", metadata.get("annotations") or {})
    yield from _check_finalizers(metadata.get("finalizers") or [], kind)
    yield from _check_owners(metadata.get("ownerReferences") or [])


def _check_finalizers(finalizers: list[str], kind: Kind) -> Iterator[FieldError]:
    for index, finalizer in enumerate(finalizers):
        for problem in qualified_name(finalizer):
            yield FieldError("metadata.finalizers", "Invalid", finalizer, problem)
        if not kind.custom and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            problem = "name is neither a standard finalizer name nor is it fully qualified"
            yield FieldError(f"metadata.finalizers[{index}]", "Invalid", finalizer, problem)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        yield FieldError("metadata.finalizers", "Invalid", finalizers, detail)


def _check_owners(owners: list[JsonObject]) -> Iterator[FieldError]:
    # The real server does not say which of the references it means.
    path = "metadata.ownerReferences"
    controllers = []
    for owner in owners:
        group, _, version = owner.get("apiVersion", "").rpartition("/")
        if not version or "/" in group:
            problem = "version must not be empty"
            yield FieldError(f"{path}.apiVersion", "Invalid", owner.get("apiVersion", ""), problem)
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                yield FieldError(f"{path}.{field}", "Invalid", "", "must not be empty")
        if (group, version, owner.get("kind")) == ("", "v1", "Event"):
            yield FieldError(path, "Invalid", owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
    for another in controllers[1:]:
        detail = (
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {controllers[0]} and {another}'
        )
        yield FieldError(path, "Invalid", owners, detail)


def validate_object_meta_update(metadata: JsonObject, old: JsonObject) -> list[FieldError]:
    """Check that a change leaves the server's fields alone and adds no finalizer to an object that is being deleted."""
    errors = [
        immutable(f"metadata.{field}", metadata.get(field))
        for field in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if metadata.get(field) != old.get(field)
    ]
    if "deletionTimestamp" in old:
        known = set(old.get("finalizers") or ())
        added = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer not in known]
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            text = "no new finalizers can be added if the object is being deleted"
            detail = f"{text}, found new finalizers []string{{{listed}}}"
            errors.append(FieldError("metadata.finalizers", "Forbidden", detail=detail))
    return errors
