"""Rules of the status of a Job, and of how it may change (KEP-4368). Pure.

Whoever runs Jobs must not contradict by a status what clients rely on. Most rules are asked only when a write changes
what they are about: a status that was wrong before is not held against an unrelated change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmaster.devcluster.apiserver.errors import OMITTED, FieldError, immutable, negative
from trainmaster.devcluster.apiserver.registry.batch.job_policy_validation import (
    IndexesMalformed,
    count_indexes,
    first_common_index,
)
from trainmaster.runtime.jsontree import JsonObject

_PATH = "status"
_CONDITIONS = f"{_PATH}.conditions"
_COUNTERS = ("active", "succeeded", "failed", "ready", "terminating")
_OUTCOMES = frozenset({"Complete", "Failed"})


def validate_job_status_update(job: JsonObject, old: JsonObject) -> list[FieldError]:
    """Return the broken rules of a changed status."""
    change = _Change(job, old)
    return [
        *_validate_counters(change.status),
        *_validate_uncounted(change.status),
        *_validate_outcome(change, job["spec"]),
        *_validate_finished(change),
        *_validate_times(change),
        *_validate_indexes(change, job["spec"]),
        *_validate_transition(change, job["spec"]),
    ]


class _Change:
    """A new status next to the old one."""

    def __init__(self, job: JsonObject, old: JsonObject) -> None:
        self.status: JsonObject = job.get("status") or {}
        self.before: JsonObject = old.get("status") or {}
        self.holding = _holding(self.status)
        self.held = _holding(self.before)

    def of(self, *fields: str) -> bool:
        """Return whether one of these fields changes."""
        return any(self.status.get(field) != self.before.get(field) for field in fields)

    def of_conditions(self, *types: str) -> bool:
        """Return whether one of these conditions begins or ends to hold."""
        return not (self.holding ^ self.held).isdisjoint(types)

    @property
    def finishes(self) -> bool:
        """Whether the job finishes by this change, or stops being finished."""
        return self.holding.isdisjoint(_OUTCOMES) != self.held.isdisjoint(_OUTCOMES)


def _holding(status: JsonObject) -> set[str]:
    return {each["type"] for each in status.get("conditions") or () if each.get("status") == "True" and "type" in each}


def _count(status: JsonObject, counter: str) -> int:
    value: int = status.get(counter) or 0
    return value


def _validate_counters(status: JsonObject) -> Iterator[FieldError]:
    for counter in _COUNTERS:
        if _count(status, counter) < 0:
            yield negative(f"{_PATH}.{counter}", status[counter])


def _validate_uncounted(status: JsonObject) -> Iterator[FieldError]:
    uncounted = status.get("uncountedTerminatedPods") or {}
    seen: set[str] = set()
    for field in ("succeeded", "failed"):
        for index, uid in enumerate(uncounted.get(field) or ()):
            path = f"{_PATH}.uncountedTerminatedPods.{field}[{index}]"
            if not uid:
                yield FieldError(path, "Invalid", uid, "must not be empty")
            elif uid in seen:
                yield FieldError(path, "Duplicate", uid)
            seen.add(uid)


_CONTRADICTIONS = (
    # (the two conditions, which of them must have changed for the rule to be asked; none for always)
    ("Complete", "Failed", ("Complete", "Failed")),
    ("Complete", "FailureTarget", ("Complete", "FailureTarget")),
    ("SuccessCriteriaMet", "Failed", ()),
    ("SuccessCriteriaMet", "FailureTarget", ()),
)
_ANNOUNCEMENTS = (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet"))


def _validate_outcome(change: _Change, spec: JsonObject) -> Iterator[FieldError]:
    """Check that the conditions tell one outcome, which was announced."""
    holding = change.holding
    for left, right, asked in _CONTRADICTIONS:
        if {left, right} <= holding and (not asked or change.of_conditions(*asked)):
            yield _wrong_conditions(f"cannot set {left}=True and {right}=true conditions")
    for outcome, announcement in _ANNOUNCEMENTS:
        if outcome in holding and announcement not in holding and change.of_conditions(outcome, announcement):
            yield _wrong_conditions(f"cannot set {outcome}=True condition without the {announcement}=true condition")
    if "successPolicy" in spec and "Complete" in holding and "SuccessCriteriaMet" not in holding:
        yield _wrong_conditions("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")


def _validate_finished(change: _Change) -> Iterator[FieldError]:
    """Check that nothing of a finished job is left."""
    status = change.status
    if change.holding.isdisjoint(_OUTCOMES):
        return
    for counter in ("active", "terminating"):
        if _count(status, counter) > 0 and (change.finishes or change.of(counter)):
            detail = f"{counter}>0 is invalid for finished job"
            yield FieldError(f"{_PATH}.{counter}", "Invalid", status[counter], detail)
    if not status.get("startTime") and (change.finishes or change.of("startTime")):
        yield FieldError(f"{_PATH}.startTime", "Required", detail="startTime is required for finished job")
    uncounted = status.get("uncountedTerminatedPods") or {}
    if any(uncounted.values()) and (change.finishes or change.of("uncountedTerminatedPods")):
        shown = {"Succeeded": uncounted.get("succeeded"), "Failed": uncounted.get("failed")}
        yield FieldError(f"{_PATH}.uncountedTerminatedPods", "Invalid", shown, "must be empty for finished job")


def _validate_times(change: _Change) -> Iterator[FieldError]:
    status = change.status
    started, completed = status.get("startTime"), status.get("completionTime")
    path = f"{_PATH}.completionTime"
    if change.of_conditions("Complete") or change.of("completionTime"):
        if completed and "Complete" not in change.holding:
            detail = "cannot set completionTime when there is no Complete=True condition"
            yield FieldError(path, "Invalid", completed, detail)
        if not completed and "Complete" in change.holding:
            yield FieldError(path, "Required", detail="completionTime is required for Complete jobs")
    if started and completed and completed < started and change.of("startTime", "completionTime"):
        yield FieldError(path, "Invalid", completed, "must be equal to or after `startTime`")


def _validate_indexes(change: _Change, spec: JsonObject) -> Iterator[FieldError]:
    status = change.status
    completed, failed = status.get("completedIndexes") or "", status.get("failedIndexes")
    completions, limited = spec.get("completions"), "backoffLimitPerIndex" in spec
    if change.of("completedIndexes"):
        yield from _validate_format("completedIndexes", completed, completions)
        if completed and spec.get("completionMode") != "Indexed":
            detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
            yield FieldError(f"{_PATH}.completedIndexes", "Invalid", completed, detail)
    path = f"{_PATH}.failedIndexes"
    if change.of("failedIndexes") and failed is not None:
        if limited:
            yield from _validate_format("failedIndexes", failed, completions)
        else:
            detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            yield FieldError(path, "Invalid", failed, detail)
    if failed is not None and completions is not None and change.of("failedIndexes", "completedIndexes"):
        common = first_common_index(completed, failed, completions)
        if common is not None:
            detail = f"failedIndexes and completedIndexes overlap at index: {common}"
            yield FieldError(path, "Invalid", failed, detail)


def _validate_format(field: str, text: str, completions: int | None) -> Iterator[FieldError]:
    if completions is None:
        return
    try:
        count_indexes(text, completions)
    except IndexesMalformed as error:
        yield FieldError(f"{_PATH}.{field}", "Invalid", text, f"error parsing {field}: {error}")


def _validate_transition(change: _Change, spec: JsonObject) -> Iterator[FieldError]:
    status, before, ended = change.status, change.before, change.held - change.holding
    ready: Any = status.get("ready")
    if ready is not None and ready > _count(status, "active") and change.of("ready", "active"):
        yield FieldError(f"{_PATH}.ready", "Invalid", ready, "cannot set more ready pods than active")
    for terminal in ("Failed", "Complete", "FailureTarget"):
        if terminal in ended:
            yield _wrong_conditions(f"cannot disable the terminal {terminal}=True condition")
    if "SuccessCriteriaMet" in ended:
        yield _wrong_conditions("cannot disable the SuccessCriteriaMet=True condition")
    if "Complete" in change.held and "SuccessCriteriaMet" in change.holding - change.held:
        yield _wrong_conditions("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
    for counter in ("failed", "succeeded"):
        # Indexes of an elastic Job can go away, and their successes with them.
        elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
        if _count(status, counter) < _count(before, counter) and not (counter == "succeeded" and elastic):
            detail = f"cannot decrease the {counter} counter"
            yield FieldError(f"{_PATH}.{counter}", "Invalid", _count(status, counter), detail)
    completed = status.get("completionTime")
    if completed and before.get("completionTime") not in (None, completed):
        yield immutable(f"{_PATH}.completionTime", completed)
    if before.get("startTime") and change.of("startTime") and not spec.get("suspend"):
        detail = "startTime cannot be removed for unsuspended job"
        yield FieldError(f"{_PATH}.startTime", "Required", detail=detail)


def _wrong_conditions(detail: str) -> FieldError:
    return FieldError(_CONDITIONS, "Invalid", OMITTED, detail)
