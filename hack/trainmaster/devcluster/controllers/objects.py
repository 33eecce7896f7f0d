"""What every controller needs of an object: controller references, finalizers, conditions, times.

Nothing here changes an object that it was given; functions that return objects return new ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from trainmaster.runtime.jsontree import JsonObject

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 time stamp of the API."""
    return datetime.fromisoformat(text)


def is_terminating(obj: JsonObject) -> bool:
    """Tell whether deletion of the object was requested."""
    return "deletionTimestamp" in obj["metadata"]


def controller_of(obj: JsonObject) -> JsonObject | None:
    """Return the one owner reference that is marked as the managing controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            owner: JsonObject = reference
            return owner
    return None


def new_controller_ref(owner: JsonObject) -> JsonObject:
    """Return the owner reference that a controller puts on the children of `owner`."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def has_finalizer(obj: JsonObject, finalizer: str) -> bool:
    """Tell whether the object carries the finalizer."""
    return finalizer in (obj["metadata"].get("finalizers") or ())


def without_finalizer(obj: JsonObject, finalizer: str) -> JsonObject:
    """Return the object with one finalizer less."""
    kept = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
    return {**obj, "metadata": {**obj["metadata"], "finalizers": kept}}


def find_condition(obj: JsonObject, kind: str) -> JsonObject | None:
    """Return the status condition of the given type."""
    return condition_of(obj.get("status", {}).get("conditions") or (), kind)


def condition_of(conditions: Iterable[JsonObject], kind: str) -> JsonObject | None:
    """Return the condition of the given type from a list of conditions."""
    return next((condition for condition in conditions if condition["type"] == kind), None)


def is_condition_true(obj: JsonObject, kind: str) -> bool:
    """Tell whether the object has the condition with status True."""
    condition = find_condition(obj, kind)
    return condition is not None and condition.get("status") == "True"
