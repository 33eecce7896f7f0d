"""The metadata that all kinds share: what the server writes into it, and its rules.

The rules are those of names, labels, annotations, finalizers and owner references.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import datetime

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import label_value, qualified_name

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_PREFIX_LIMIT = 63 - _SUFFIX_LENGTH

_GIVEN_BY_SERVER = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


def generated_name(prefix: str, chooser: random.Random) -> str:
    """Complete a `generateName` with a random suffix."""
    return prefix[:_PREFIX_LIMIT] + "".join(chooser.choices(_SUFFIX_ALPHABET, k=_SUFFIX_LENGTH))


def fill_system_fields(metadata: JsonObject, kind: Kind, *, uid: str, now: datetime) -> None:
    """Set what belongs to the server in the metadata of a new object."""
    for field in (*_GIVEN_BY_SERVER, "resourceVersion"):
        metadata.pop(field, None)
    _drop_empty(metadata)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = timestamp(now)
    if kind.strategy.has_generation:
        metadata["generation"] = 1


def restore_system_fields(metadata: JsonObject, old: JsonObject) -> None:
    """Fill in from the old object what the client left out and may not remove."""
    for field in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if field in old and not metadata.get(field):
            metadata[field] = old[field]
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


_ANNOTATIONS_LIMIT = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"foregroundDeletion", "kubernetes", "orphan"})


def validate_object_meta(metadata: JsonObject, kind: Kind) -> list[FieldError]:
    """Check names, labels, annotations, finalizers and owner references."""
    return list(_metadata_errors(metadata, kind))


def _metadata_errors(metadata: JsonObject, kind: Kind) -> Iterator[FieldError]:
    name = metadata.get("name")
    if not name:
        yield FieldError("metadata.name", "Required", detail="name or generateName is required")
    else:
        yield from (
            FieldError("metadata.name", "Invalid", name, problem) for problem in kind.strategy.validate_name(name)
        )
    labels = metadata.get("labels")
    if labels:
        yield from _check_labels(labels)
    annotations = metadata.get("annotations")
    if annotations:
        yield from _check_annotations(annotations)
    yield from _check_finalizers(metadata.get("finalizers") or (), kind)
    owners = metadata.get("ownerReferences")
    if owners:
        yield from _check_owners(owners)


def _check_labels(labels: JsonObject) -> Iterator[FieldError]:
    for key, value in labels.items():
        for problem in qualified_name(key):
            yield FieldError("metadata.labels", "Invalid", key, problem)
        for problem in label_value(value):
            yield FieldError("metadata.labels", "Invalid", value, problem)


def _check_annotations(annotations: JsonObject) -> Iterator[FieldError]:
    for key in annotations:
        for problem in qualified_name(key.lower()):
            yield FieldError("metadata.annotations", "Invalid", key, problem)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        yield FieldError("metadata.annotations", "TooLong", detail=f"may not be more than {_ANNOTATIONS_LIMIT} bytes")


def _check_finalizers(finalizers: Iterable[str], kind: Kind) -> Iterator[FieldError]:
    for index, finalizer in enumerate(finalizers):
        for problem in qualified_name(finalizer):
            yield FieldError("metadata.finalizers", "Invalid", finalizer, problem)
        if not kind.custom and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            problem = "name is neither a standard finalizer name nor is it fully qualified"
            yield FieldError(f"metadata.finalizers[{index}]", "Invalid", finalizer, problem)


def _check_owners(owners: list[JsonObject]) -> Iterator[FieldError]:
    controllers = []
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                # The real server does not say which of the references it means.
                what = "version must not be empty" if field == "apiVersion" else "must not be empty"
                yield FieldError(f"metadata.ownerReferences.{field}", "Invalid", "", what)
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
    if len(controllers) > 1:
        yield FieldError(
            "metadata.ownerReferences",
            "Invalid",
            owners,
            "Only one reference can have Controller set to true. "
            f'Found "true" in references for {controllers[0]} and {controllers[1]}',
        )


def validate_object_meta_update(metadata: JsonObject, old: JsonObject) -> list[FieldError]:
    """Check that a change leaves the server's fields alone and adds no finalizer to an object that is being deleted."""
    errors = [
        immutable(f"metadata.{field}", metadata.get(field))
        for field in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
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
