"""What controllers of several kinds read from a pod, and pods made of a template. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from trainmaster.devcluster.controllers.objects import (
    find_condition,
    is_condition_true,
    is_terminating,
    new_controller_ref,
    parse_time,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree


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


_FROM_TEMPLATE = ("labels", "annotations", "finalizers")
