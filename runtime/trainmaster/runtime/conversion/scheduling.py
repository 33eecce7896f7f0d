"""Gang scheduling: Training Operator V1 is told its gang scheduler once for all jobs, a runtime says its own."""

from __future__ import annotations

from typing import Final

from trainmaster.runtime.api.constants import VOLCANO_QUEUE_ANNOTATION
from trainmaster.runtime.conversion.notes import Notes
from trainmaster.runtime.conversion.run_policy import SchedulingPolicy
from trainmaster.runtime.jsontree import JsonObject

VOLCANO: Final = "volcano"
_PATH: Final = "spec.runPolicy.schedulingPolicy"


def set_gang(
    runtime: JsonObject,
    pod_specs: list[JsonObject],
    policy: SchedulingPolicy,
    *,
    scheduler: str,
    pods: int,
    notes: Notes,
) -> None:
    """Let all pods of a runtime be scheduled together.

    Args:
        runtime: The runtime's spec; it is changed.
        pod_specs: Those of its pods; they are changed.
        policy: What the job says.
        scheduler: What Training Operator V1 runs with as `--gang-scheduler-name`; nothing: without gangs.
        pods: How many pods the job has.
        notes: Where to tell what is lost.
    """
    if not scheduler:
        for path in policy.given:
            notes.lose(
                path, "left out: it counts only with a gang scheduler; name the one of V1 with --gang-scheduler-name"
            )
        return
    is_volcano = scheduler.lower() == VOLCANO
    for pod_spec in pod_specs:
        pod_spec.setdefault("schedulerName", VOLCANO if is_volcano else scheduler)
    if is_volcano:
        _set_volcano(runtime, pod_specs, policy, notes)
    else:
        _set_coscheduling(runtime, policy, notes)
    if policy.min_available is not None and policy.min_available != pods:
        notes.lose(
            f"{_PATH}.minAvailable",
            f"{policy.min_available} becomes {pods}: a TrainJob starts with all of its pods or not at all",
        )
    elif policy.min_available is not None:
        notes.tell(f"{_PATH}.minAvailable", "left out: it is the number of all pods, which a TrainJob waits for anyway")
    if f"{_PATH}.minResources" in " ".join(policy.given):
        notes.tell(f"{_PATH}.minResources", "left out: it is calculated from what the pods request")


def _set_volcano(runtime: JsonObject, pod_specs: list[JsonObject], policy: SchedulingPolicy, notes: Notes) -> None:
    runtime["podGroupPolicy"] = {"volcano": {}}
    if policy.queue:
        metadata = runtime["template"].setdefault("metadata", {})
        metadata.setdefault("annotations", {})[VOLCANO_QUEUE_ANNOTATION] = policy.queue
    if policy.priority_class:
        for pod_spec in pod_specs:
            pod_spec.setdefault("priorityClassName", policy.priority_class)
        notes.tell(
            f"{_PATH}.priorityClass", "is set for the pods that name none, too: the gang has the class of its pods"
        )
    if policy.schedule_timeout_seconds is not None:
        notes.tell(f"{_PATH}.scheduleTimeoutSeconds", "left out: V1 does not pass it on to Volcano either")


def _set_coscheduling(runtime: JsonObject, policy: SchedulingPolicy, notes: Notes) -> None:
    timeout = policy.schedule_timeout_seconds
    runtime["podGroupPolicy"] = {"coscheduling": {} if timeout is None else {"scheduleTimeoutSeconds": timeout}}
    for name, value in (("queue", policy.queue), ("priorityClass", policy.priority_class)):
        if value is not None:
            notes.tell(f"{_PATH}.{name}", "left out: V1 passes it on to Volcano only")
