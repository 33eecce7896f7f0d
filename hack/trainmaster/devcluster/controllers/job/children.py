"""The pods of a Job: how a new one is built, and what the Job controller reads from an existing one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainmaster.devcluster.controllers.job.indexes import COMPLETION_INDEX, INDEX_FAILURES, INDEX_IGNORED_FAILURES
from trainmaster.devcluster.controllers.objects import (
    find_condition,
    has_finalizer,
    new_controller_ref,
    parse_time,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"

_GENERATED_NAME_BASE = 58  # a DNS label of 63 characters less the 5 random ones


@dataclass(frozen=True, slots=True)
class PodToCreate:
    """A pod that a Job needs; the failure counts exist only where the Job limits failures per index."""

    index: int | None = None
    failures: int | None = None
    ignored_failures: int = 0


def build_pod(job: JsonObject, new: PodToCreate) -> JsonObject:
    """Build a pod of the Job, complete but for what the API server adds."""
    job_name, job_uid = job["metadata"]["name"], job["metadata"]["uid"]
    template = copy_tree(job["spec"]["template"])
    spec: JsonObject = template.get("spec", {})
    labels: dict[str, str] = dict((template.get("metadata") or {}).get("labels") or {})
    annotations: dict[str, str] = dict((template.get("metadata") or {}).get("annotations") or {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels[f"{prefix}controller-uid"] = job_uid
        labels[f"{prefix}job-name"] = job_name
    base = f"{job_name}-"
    if new.index is not None:
        suffix = f"-{new.index}-"
        base = job_name[: _GENERATED_NAME_BASE - len(suffix)] + suffix  # the API server would cut off the index
        spec["hostname"] = f"{job_name}-{new.index}"
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(new.index)
        for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
            _add_index_variable(container)
    if new.failures is not None:
        annotations[INDEX_FAILURES] = str(new.failures)
        if new.ignored_failures:
            annotations[INDEX_IGNORED_FAILURES] = str(new.ignored_failures)
    metadata: JsonObject = {
        "generateName": base,
        "namespace": job["metadata"]["namespace"],
        "labels": labels,
        "finalizers": [*((template.get("metadata") or {}).get("finalizers") or ()), TRACKING_FINALIZER],
        "ownerReferences": [new_controller_ref(job)],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _add_index_variable(container: JsonObject) -> None:
    env = container.setdefault("env", [])
    if any(variable["name"] == INDEX_VARIABLE for variable in env):
        return  # the user's own definition wins
    env.append(
        {"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}}
    )


def is_tracked(pod: JsonObject) -> bool:
    """Tell whether the pod still waits to be counted."""
    return has_finalizer(pod, TRACKING_FINALIZER)


def restarts_of(pod: JsonObject) -> int:
    """Return how often the containers of the pod were restarted in place."""
    status = pod.get("status", {})
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return sum(container.get("restartCount", 0) for container in statuses)


def finish_time(pod: JsonObject) -> datetime:
    """Return when the pod ended, as well as its status tells."""
    status = pod.get("status", {})
    ends = [
        parse_time(terminated["finishedAt"])
        for container in status.get("containerStatuses") or ()
        if (terminated := (container.get("state") or {}).get("terminated")) and terminated.get("finishedAt")
    ]
    if ends:
        return max(ends)
    condition = find_condition(pod, "Ready") or {}
    metadata = pod["metadata"]
    return parse_time(
        condition.get("lastTransitionTime") or metadata.get("deletionTimestamp") or metadata["creationTimestamp"]
    )
