"""Rules about the status of a Job (KEP-4368): whoever runs Jobs must not contradict what clients rely on. Pure.

The rules look at what a write changes: a status that was wrong before is not held against an unrelated change.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import OMITTED, FieldError
from trainmaster.devcluster.apiserver.registry.batch.job_policy_validation import IndexesMalformed, count_indexes
from trainmaster.runtime.jsontree import JsonObject

_COUNTERS = ("active", "ready", "succeeded", "failed", "terminating")
_PATH = "status"


def validate_job_status_update(job: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return the broken rules of a changed status."""
    status, before = job.get("status", {}), old.get("status", {})
    if status == before:
        return []
    known = list(_validate_state(old["spec"], before))
    found = [problem for problem in _validate_state(job["spec"], status) if problem not in known]
    return [*found, *_validate_transition(old["spec"], status, before)]


def _holding(status: JsonObject) -> set[str]:
    return {each["type"] for each in status.get("conditions") or () if each.get("status") == "True"}


def _validate_state(spec: JsonObject, status: JsonObject) -> Iterator[FieldError]:
    for counter in _COUNTERS:
        value = status.get(counter) or 0
        if value < 0:
            yield FieldError(f"{_PATH}.{counter}", "Invalid", value, "must be greater than or equal to 0")
    ready = status.get("ready")
    if ready is not None and ready > (status.get("active") or 0):
        yield FieldError(f"{_PATH}.ready", "Invalid", ready, "cannot set more ready pods than active")
    yield from _validate_condition(status)
    if _holding(status) & {"Complete", "Failed"}:
        yield from _validate_finished(status)
    yield from _validate_index(spec, status)


def _validate_condition(status: JsonObject) -> Iterator[FieldError]:
    holding = _holding(status)
    path = f"{_PATH}.conditions"
    for left, right in (
        ("Complete", "Failed"),
        ("Complete", "FailureTarget"),
        ("Failed", "SuccessCriteriaMet"),
        ("FailureTarget", "SuccessCriteriaMet"),
    ):
        if {left, right} <= holding:
            yield FieldError(path, "Invalid", OMITTED, f"cannot set {left}=True and {right}=true conditions")
    for final, announcement in (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")):
        if final in holding and announcement not in holding:
            detail = f"cannot set {final}=True condition without the {announcement}=true condition"
            yield FieldError(path, "Invalid", OMITTED, detail)
    completed = status.get("completionTime")
    here = f"{_PATH}.completionTime"
    if completed and "Complete" not in holding:
        yield FieldError(
            here, "Invalid", completed, "cannot set completionTime when there is no Complete=True condition"
        )
    elif not completed and "Complete" in holding:
        yield FieldError(here, "Required", detail="completionTime is required for Complete jobs")
    elif completed and status.get("startTime") and completed < status["startTime"]:
        yield FieldError(here, "Invalid", completed, "completionTime cannot be set before startTime")


def _validate_finished(status: JsonObject) -> Iterator[FieldError]:
    for counter in ("active", "terminating"):
        if status.get(counter):
            detail = f"{counter}>0 is invalid for finished job"
            yield FieldError(f"{_PATH}.{counter}", "Invalid", status[counter], detail)
    if not status.get("startTime"):
        yield FieldError(f"{_PATH}.startTime", "Required", detail="startTime is required for finished job")
    uncounted = status.get("uncountedTerminatedPods") or {}
    if uncounted.get("succeeded") or uncounted.get("failed"):
        detail = "uncountedTerminatedPods needs to be empty for finished job"
        yield FieldError(f"{_PATH}.uncountedTerminatedPods", "Invalid", OMITTED, detail)


def _validate_index(spec: JsonObject, status: JsonObject) -> Iterator[FieldError]:
    completed, failed = status.get("completedIndexes"), status.get("failedIndexes")
    if completed and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield FieldError(f"{_PATH}.completedIndexes", "Invalid", completed, detail)
    if failed is not None and "backoffLimitPerIndex" not in spec:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield FieldError(f"{_PATH}.failedIndexes", "Invalid", failed, detail)
    if spec.get("completionMode") != "Indexed":
        return
    for field, text in (("completedIndexes", completed), ("failedIndexes", failed)):
        try:
            count_indexes(text or "", spec.get("completions") or 0)
        except IndexesMalformed as error:
            yield FieldError(f"{_PATH}.{field}", "Invalid", text, f"error parsing {field}: {error}")


def _validate_transition(spec: JsonObject, status: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    for final in ("Complete", "Failed"):
        if final in _holding(before) - _holding(status):
            detail = f"cannot disable the terminal {final}=True condition"
            yield FieldError(f"{_PATH}.conditions", "Invalid", OMITTED, detail)
    for announcement in ("FailureTarget", "SuccessCriteriaMet"):
        if announcement in _holding(before) - _holding(status):
            detail = f"cannot disable the {announcement}=True condition"
            yield FieldError(f"{_PATH}.conditions", "Invalid", OMITTED, detail)
    if before.get("completionTime") and status.get("completionTime") != before["completionTime"]:
        yield FieldError(f"{_PATH}.completionTime", "Invalid", status.get("completionTime"), "field is immutable")
    if before.get("startTime") and not spec.get("suspend"):
        if not status.get("startTime"):
            yield FieldError(f"{_PATH}.startTime", "Required", detail="startTime cannot be removed for unsuspended job")
        elif status["startTime"] != before["startTime"]:
            detail = "startTime cannot be modified for unsuspended job"
            yield FieldError(f"{_PATH}.startTime", "Invalid", status["startTime"], detail)
    if (status.get("failed") or 0) < (before.get("failed") or 0):
        yield FieldError(f"{_PATH}.failed", "Invalid", status.get("failed", 0), "cannot decrease the failed counter")
    # Indexes of an elastic Job can go away, and their successes with them.
    decreased = (status.get("succeeded") or 0) < (before.get("succeeded") or 0)
    if decreased and spec.get("completionMode") != "Indexed":
        detail = "cannot decrease the succeeded counter"
        yield FieldError(f"{_PATH}.succeeded", "Invalid", status.get("succeeded", 0), detail)
