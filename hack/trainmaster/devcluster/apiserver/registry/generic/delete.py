"""Before a deletion (kube-apiserver's rest.BeforeDelete): what it does to one object, decided without doing it.

An object without finalizers and without a grace period goes at once. Otherwise it is marked: it carries a
deletionTimestamp and stays until its finalizers are gone and, for a pod, until it is deleted again without grace.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.registry.options import DeleteOptions
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.runtime.jsontree import JsonObject, copy_tree

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class Deletion:
    """The decision: remove the object, or keep it in the given state."""

    remove: bool
    obj: JsonObject
    changed: bool


def check_preconditions(kind: Kind, obj: JsonObject, options: DeleteOptions) -> None:
    """Refuse to delete an object that is not the one the client means."""
    metadata = obj["metadata"]
    for what, wanted, actual in (
        ("UID", options.uid, metadata.get("uid", "")),
        ("ResourceVersion", options.resource_version, metadata.get("resourceVersion", "")),
    ):
        if wanted is not None and wanted != actual:
            text = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
            raise errors.conflict(kind.resource, metadata["name"], text)


def before_delete(kind: Kind, obj: JsonObject, options: DeleteOptions, *, now: datetime) -> Deletion:
    """Decide what happens to an object, which is not changed."""
    new: JsonObject = copy_tree(obj)
    metadata = new["metadata"]
    finalizers = _finalizers(kind, metadata.get("finalizers") or [], options)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if "deletionTimestamp" in metadata:
        _shorten(metadata, options)
    else:
        grace = max(kind.strategy.grace_seconds(obj, options.grace_seconds), 0)
        metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if metadata.get("generation"):
            metadata["generation"] += 1
        kind.strategy.mark_deleted(new)
    if is_released(kind, new):
        return Deletion(remove=True, obj=obj, changed=True)
    return Deletion(remove=False, obj=new, changed=new != obj)


def is_released(kind: Kind, obj: JsonObject) -> bool:
    """Return whether nothing holds an object whose deletion was requested."""
    metadata = obj["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not kind.strategy.is_held(obj)
    )


def _finalizers(kind: Kind, present: list[str], options: DeleteOptions) -> list[str]:
    """Return the finalizers that the object gets; an explicit propagation overrides an earlier one."""
    if not kind.strategy.collects_dependents:
        return present
    match options.propagation:
        case "Foreground":
            wanted = FOREGROUND
        case "Orphan":
            wanted = ORPHAN
        case "Background":
            wanted = ""
        case None:
            if ORPHAN in present or FOREGROUND in present:
                return present
            wanted = ORPHAN if kind.strategy.orphans_by_default else ""
    kept = [each for each in present if each == wanted or each not in (FOREGROUND, ORPHAN)]
    return kept if not wanted or wanted in kept else [*kept, wanted]


def _shorten(metadata: JsonObject, options: DeleteOptions) -> None:
    """Apply a second deletion: it may shorten the grace period, never lengthen it."""
    present = metadata.get("deletionGracePeriodSeconds") or 0
    requested = options.grace_seconds
    if requested is None or not 0 <= requested < present:
        return
    moment = datetime.fromisoformat(metadata["deletionTimestamp"])
    metadata["deletionTimestamp"] = timestamp(moment - timedelta(seconds=present - requested))
    metadata["deletionGracePeriodSeconds"] = requested
