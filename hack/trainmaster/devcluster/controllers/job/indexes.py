"""Completion indexes: of pods, their failures, and sets of them as text (`0,2-4`). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainmaster.runtime.jsontree import JsonObject

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"


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
