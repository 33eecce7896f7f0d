"""Which objects are of a job itself, not of a namesake that was deleted before. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.jsontree import JsonObject


def owned_by(objects: Sequence[JsonObject] | None, uid: str) -> Sequence[JsonObject] | None:
    """Return what belongs to the job itself, not to a namesake that was deleted before."""
    if objects is None:
        return None
    return [each for each in objects if any(owner.get("uid") == uid for owner in owners_of(each))]


def owners_of(obj: JsonObject) -> Sequence[JsonObject]:
    """Return the references to the owners of an object."""
    return obj["metadata"].get("ownerReferences") or ()


def created_since(objects: Sequence[JsonObject] | None, view: JobView) -> Sequence[JsonObject] | None:
    """Return what was created after the job."""
    if objects is None:
        return None
    created = view.metadata.get("creationTimestamp") or ""
    return [each for each in objects if str(each["metadata"].get("creationTimestamp") or "") >= created]
