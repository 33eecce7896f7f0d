"""The metadata of what is converted: what its author wrote stays, what a cluster added goes."""

from __future__ import annotations

from typing import Final

from trainmaster.runtime.conversion.notes import ConversionError, Notes
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jsontree import JsonObject

_SERVER_FIELDS: Final = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def convert_metadata(source: Source, notes: Notes) -> JsonObject:
    """Return the metadata of the new object.

    Raises:
        ConversionError: It has no name.
    """
    metadata: JsonObject = {}
    for name in ("name", "generateName", "namespace"):
        if value := source.take(name, str):
            metadata[name] = value
    if not metadata.get("name") and not metadata.get("generateName"):
        raise ConversionError("metadata.name", "is missing")
    for name in ("labels", "annotations"):
        if pairs := source.take(name, dict):
            metadata[name] = pairs
    if metadata.get("annotations", {}).pop(_LAST_APPLIED, None) is not None:
        notes.tell(source.at(f"annotations.{_LAST_APPLIED}"), "left out: it holds the old object as text")
        if not metadata["annotations"]:
            del metadata["annotations"]
    if owners := source.take("ownerReferences", list):
        metadata["ownerReferences"] = owners
    if source.take("finalizers", list):
        notes.lose(
            source.at("finalizers"),
            "left out: who set them looks for the old object; let it set them on the new one where it should wait",
        )
    for name in _SERVER_FIELDS:
        if source.take(name, object) is not None:
            notes.tell(source.at(name), "left out: the API server sets it")
    return metadata


def drop_status(source: Source, notes: Notes) -> None:
    """Leave out a status, which is that of the old object."""
    if source.take("status", object) is not None:
        notes.tell("status", "left out: the new object gets a status of its own")
