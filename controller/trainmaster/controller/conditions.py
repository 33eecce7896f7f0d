"""Conditions of an object's status, as metav1.Condition (Kubernetes API conventions), and those of jobs that the
original does not have: their types, and reasons, of events as well, to look for.

Guarantee, F-4: `lastTransitionTime` moves only when the status flips; types are unique; the order never changes.

Ours are there while they are true, and removed then, not set to False: the Kubeflow SDK takes only a job without
conditions to be running.
"""

from __future__ import annotations

from typing import Final

from trainmaster.runtime.jsontree import JsonObject

BLOCKED: Final = "Blocked"
"""True while something keeps the job from being built."""

RUNTIME_NOT_FOUND: Final = "RuntimeNotFound"
"""Condition reason; `trainmaster run` looks for it, because waiting does not help then."""

RUNTIME_DENIED: Final = "RuntimeForbidden"

NAME_TAKEN: Final = "NameTaken"
"""Condition reason: an object of somebody else has the name of one of ours."""

KIND_NOT_SERVED: Final = "KindNotServed"
"""Condition reason: a plugin that serves the job needs a kind that the cluster does not serve."""

JOB_CREATION_FAILED: Final = "JobCreationFailed"
"""The reason of JobSet's event that says why it has no Jobs, and of our condition."""

CONTAINER_FAILED: Final = "ContainerFailed"
"""True from the first failure of a container until the workload is ready again. It is also the reason of the event that
tells of each attempt. The reason of the condition is the cause, as `trainmaster explain` names it.
"""

PLUGIN_SKIPPED: Final = "PluginSkipped"
"""True while a TrainJob goes on without a plugin that failed."""

PLUGIN_FAILED: Final = "PluginFailed"
PLUGIN_QUARANTINED: Final = "PluginQuarantined"
BUILD_REJECTED: Final = "BuildRejected"
"""Condition reasons: what a plugin did that stands in the way."""

WAITING: Final = "Waiting"
"""True while a TrainJob that nothing blocks waits for pods that do not start, or do not end for a sidecar, from half a
minute on. The reason is the cause, as `trainmaster explain` names it.
"""

TIME_TO_LIVE_EXPIRED: Final = "TimeToLiveExpired"
"""The reason of the event that says why the manager has deleted a TrainJob."""


def stored_status(raw: JsonObject) -> JsonObject:
    """Return the status of an object that cannot be read, with a list of conditions; both may be empty.

    What is no condition is of no use to anybody, and may be why the object cannot be read.
    """
    stored = raw.get("status")
    status = stored if isinstance(stored, dict) else {}
    conditions = status.get("conditions")
    kept = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    return {**status, "conditions": kept}


def find_condition(conditions: list[JsonObject], condition_type: str) -> JsonObject | None:
    """Return the condition of that type."""
    for condition in conditions:
        if condition.get("type") == condition_type:
            return condition
    return None


def is_true(conditions: list[JsonObject], condition_type: str) -> bool:
    """Tell whether the condition of that type exists and holds."""
    condition = find_condition(conditions, condition_type)
    return condition is not None and condition.get("status") == "True"


def set_condition(conditions: list[JsonObject], condition: JsonObject, *, now: str) -> None:
    """Add a condition or bring the one of its type up to date, in place.

    Args:
        condition: The new state; its own lastTransitionTime counts if it has one and the status flips.
        now: The time of a flip, RFC 3339.
    """
    stamped = {"lastTransitionTime": now, **condition}
    existing = find_condition(conditions, condition["type"])
    if existing is None:
        conditions.append(stamped)
        return
    if existing.get("status") == condition["status"]:
        stamped["lastTransitionTime"] = existing.get("lastTransitionTime") or now
    conditions[conditions.index(existing)] = stamped


def remove_condition(conditions: list[JsonObject], condition_type: str) -> None:
    """Remove the condition of that type, in place."""
    if find_condition(conditions, condition_type) is not None:
        conditions[:] = [condition for condition in conditions if condition.get("type") != condition_type]
