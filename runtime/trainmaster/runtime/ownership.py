"""Ownership: what makes an object that of a TrainJob, or of a job of another kind."""

from __future__ import annotations

from typing import Protocol

from trainmaster.runtime.api.meta import ObjectMeta
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.jsontree import JsonObject


class Owner(Protocol):
    """What objects may belong to."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata; of them the namespace, the name and the UID count."""


def controller_reference(api_version: str, kind: str, owner: Owner) -> JsonObject:
    """Build the reference that makes an owner, of that API version and kind, the controller of an object."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_reference(job: TrainJob) -> JsonObject:
    """Build the reference that makes a TrainJob the controller of an object."""
    return controller_reference(job.api_version, job.kind, job)


def is_controlled_by(obj: JsonObject, owner: Owner) -> bool:
    """Return whether an owner is the controller of an object (E-5).

    The UID counts, since a name may have been used before, and the namespace, since anybody may name any UID in an
    object of a namespace of theirs.
    """
    metadata = obj["metadata"]
    if metadata.get("namespace") != owner.metadata.namespace:
        return False
    # No generator: this is asked of every object that is looked at.
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller") and reference.get("uid") == owner.metadata.uid:
            return True
    return False


def is_left_over(obj: JsonObject, kind: str, owner: Owner) -> bool:
    """Tell whether an object belonged to an earlier owner of the same kind and name: it will be garbage-collected."""
    return is_left_by_earlier(obj, kind, owner, group=None)


def is_left_by_earlier(obj: JsonObject, kind: str, owner: Owner, *, group: str | None) -> bool:
    """Return whether an object belonged to an earlier owner of the same group, kind and name.

    Args:
        obj: The object.
        kind: The kind of the owner.
        owner: The owner of today.
        group: The group of its API; None: any. The garbage collector may never collect what names a kind of another.
    """
    return any(
        reference.get("controller")
        and (reference.get("kind"), reference.get("name")) == (kind, owner.metadata.name)
        and group in (None, str(reference.get("apiVersion")).partition("/")[0])
        and reference.get("uid") != owner.metadata.uid
        for reference in obj["metadata"].get("ownerReferences") or []
    )
