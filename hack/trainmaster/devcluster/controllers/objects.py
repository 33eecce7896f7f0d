"""What every controller needs of an object: controller references, finalizers, conditions, times.

Nothing here changes an object that it was given; functions that return objects return new ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from trainmaster.runtime.jsontree import JsonObject, copy_tree

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"

_FROM_TEMPLATE = ("labels", "annotations", "finalizers")


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


def phase_of(pod: JsonObject) -> str:
    """Return the phase of a pod; a pod without one is Pending."""
    phase: str = pod.get("status", {}).get("phase") or "Pending"
    return phase


def is_active(pod: JsonObject) -> bool:
    """Tell whether the pod runs or may still run, and nobody asked for its deletion."""
    return not is_terminal(pod) and not is_terminating(pod)


def is_terminal(pod: JsonObject) -> bool:
    """Tell whether the pod will never run again."""
    return phase_of(pod) in {"Succeeded", "Failed"}


def is_ready(pod: JsonObject) -> bool:
    """Tell whether the pod is ready."""
    return is_condition_true(pod, "Ready")


def ready_since(pod: JsonObject) -> datetime | None:
    """Return since when the pod is ready; None if it is not."""
    condition = find_condition(pod, "Ready")
    if condition is None or condition.get("status") != "True" or not condition.get("lastTransitionTime"):
        return None
    return parse_time(condition["lastTransitionTime"])


def available_at(pod: JsonObject, *, min_ready_seconds: int) -> datetime | None:
    """Return from when on the pod counts as available; None if it is not ready."""
    since = ready_since(pod)
    return None if since is None else since + timedelta(seconds=min_ready_seconds)


def pod_of_template(owner: JsonObject) -> JsonObject:
    """Return a pod of the template of its owner, complete but for what the API server adds."""
    template = copy_tree(owner["spec"]["template"])
    kept = {field: value for field, value in (template.get("metadata") or {}).items() if field in _FROM_TEMPLATE}
    metadata = {
        **kept,
        "generateName": f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [new_controller_ref(owner)],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
