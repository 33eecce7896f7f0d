"""Ownership: what makes an object that of a TrainJob."""

from __future__ import annotations

from trainmaster.runtime.api import TrainJob
from trainmaster.runtime.jsontree import JsonObject


def owner_reference(job: TrainJob) -> JsonObject:
    """Build the reference that makes a TrainJob the controller of an object."""
    return {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_controlled_by(obj: JsonObject, job: TrainJob) -> bool:
    """Tell whether a TrainJob is the controller of an object: by UID, since a name may have been used before (E-5)."""
    references = obj["metadata"].get("ownerReferences") or []
    return any(reference.get("controller") and reference.get("uid") == job.metadata.uid for reference in references)
