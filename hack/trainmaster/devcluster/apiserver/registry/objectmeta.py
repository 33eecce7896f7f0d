"""The rules of metadata that all kinds share: names, labels, annotations, finalizers and owner references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.field_errors import immutable
from trainmaster.devcluster.apiserver.registry.kind import Kind
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import label_value, qualified_name

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
