"""The pods of a Job: how a new one is built, and what the Job controller reads from an existing one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

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

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"


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


def parse_ranges(text: str | None) -> list[range]:
    """Read the compressed form without expanding it; raises ValueError on anything else."""
    ranges = []
    for part in (text or "").split(","):
        if part:
            first, dash, last = part.partition("-")
            ranges.append(range(int(first), int(last if dash else first) + 1))
    return ranges


def parse_indexes(text: str | None) -> set[int]:
    """Read the compressed form; for texts that this package wrote, whose size is bounded by the number of pods."""
    return {index for each in parse_ranges(text) for index in each}


def format_indexes(indexes: Iterable[int]) -> str:
    """Write indexes in ascending order, runs of three or more as `a-c`, the way Kubernetes does."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(_format_run(first, last) for first, last in runs)


def _format_run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"


def is_indexed(job: JsonObject) -> bool:
    """Tell whether each pod of the Job has a completion index."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: JsonObject) -> int | None:
    """Return the completion index of a pod, None if it has none that makes sense."""
    return _count_in(pod, COMPLETION_INDEX, missing=None)


def failures_of(pod: JsonObject) -> int:
    """Return how many failed pods of its index, counted against the limit, came before this pod."""
    return _count_in(pod, INDEX_FAILURES, missing=0) or 0


def ignored_failures_of(pod: JsonObject) -> int:
    """Return how many failed pods of its index, ignored by the pod failure policy, came before this pod."""
    return _count_in(pod, INDEX_IGNORED_FAILURES, missing=0) or 0


def _count_in(pod: JsonObject, annotation: str, *, missing: int | None) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else missing


def valid_index(job: JsonObject, pod: JsonObject) -> int | None:
    """Return the completion index of the pod if the Job has such an index."""
    index = index_of(pod)
    return index if index is not None and index < (job["spec"].get("completions") or 0) else None


def is_replaced(pod: JsonObject, pods: Sequence[JsonObject]) -> bool:
    """Tell whether a pod with a higher number of failures exists for the same index."""
    return any(index_of(other) == index_of(pod) and total_failures_of(other) > total_failures_of(pod) for other in pods)


def total_failures_of(pod: JsonObject) -> int:
    """Return how many failed pods of the same index came before this one."""
    return failures_of(pod) + ignored_failures_of(pod)
