"""Rules about the policies of a Job: what its pod failure policy and its success policy may say. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from trainmaster.devcluster.apiserver.errors import OMITTED, FieldError, too_many, unsupported
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import qualified_name

_MOST_RULES = 20
_MOST_PATTERNS = 20
_MOST_EXIT_CODES = 255
_LONGEST_INDEXES = 64 * 1024
_MOST_DIGITS = 18

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")


class IndexesMalformed(ValueError):
    """A text does not name completion indexes in ascending order."""


def count_indexes(text: str, completions: int) -> int:
    """Count the indexes that a text like `0,2-4` names; raises `IndexesMalformed`."""
    total, last = 0, -1
    for interval in text.split(",") if text else ():
        start, end = _interval(interval, completions)
        if start <= last:
            raise IndexesMalformed(f"non-increasing order, previous: {last}, current: {start}")
        total += end - start + 1
        last = end
    return total


def first_common_index(left: str, right: str, completions: int) -> int | None:
    """Return the lowest index that both texts name; intervals that cannot be read are skipped."""
    lefts, rights = _readable(left, completions), _readable(right, completions)
    while lefts and rights:
        common = max(lefts[0][0], rights[0][0])
        if common <= min(lefts[0][1], rights[0][1]):
            return common
        (lefts if lefts[0][0] <= rights[0][0] else rights).popleft()
    return None


def _readable(text: str, completions: int) -> deque[tuple[int, int]]:
    intervals: deque[tuple[int, int]] = deque()
    for interval in text.split(",") if text else ():
        with suppress(IndexesMalformed):
            intervals.append(_interval(interval, completions))
    return intervals


def _interval(text: str, completions: int) -> tuple[int, int]:
    limits = text.split("-")
    if len(limits) > 2:
        raise IndexesMalformed(
            f'the fragment "{text}" violates the requirement that an index interval can have at most two parts '
            "separated by '-'"
        )
    start, end = _index(limits[0], completions), _index(limits[-1], completions)
    if start > end:
        raise IndexesMalformed(f"non-increasing order, previous: {start}, current: {end}")
    return start, end


def _index(text: str, completions: int) -> int:
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= _MOST_DIGITS):
        raise IndexesMalformed(f'cannot convert string to integer for index: "{text}"')
    if int(digits) >= completions:
        raise IndexesMalformed(f'too large index: "{text}"')
    return int(digits)


def validate_pod_failure_policy(spec: JsonObject) -> Iterator[FieldError]:
    """Check the pod failure policy of a Job that has one."""
    path = "spec.podFailurePolicy.rules"
    rules = spec["podFailurePolicy"].get("rules") or []
    if len(rules) > _MOST_RULES:
        yield too_many(path, len(rules), _MOST_RULES)
    pod = spec["template"]["spec"]
    containers = {each.get("name") for each in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))}
    for index, rule in enumerate(rules):
        here = f"{path}[{index}]"
        yield from _validate_action(spec, rule.get("action", ""), f"{here}.action")
        codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            yield from _validate_exit_code(codes, containers, f"{here}.onExitCodes")
        yield from _validate_pattern(patterns, f"{here}.onPodConditions")
        if codes is not None and patterns:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            yield FieldError(here, "Invalid", OMITTED, detail)
        elif codes is None and not patterns:
            yield FieldError(here, "Invalid", OMITTED, "specifying one of OnExitCodes and OnPodConditions is required")


def _validate_action(spec: JsonObject, action: str, path: str) -> Iterator[FieldError]:
    if action == "FailIndex" and "backoffLimitPerIndex" not in spec:
        yield FieldError(path, "Invalid", action, "requires the backoffLimitPerIndex to be set")
    yield from _validate_choice(action, _ACTIONS, path)


def _validate_exit_code(codes: JsonObject, containers: set[str | None], path: str) -> Iterator[FieldError]:
    operator: str = codes.get("operator", "")
    yield from _validate_choice(operator, _OPERATORS, f"{path}.operator")
    name = codes.get("containerName")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        yield FieldError(f"{path}.containerName", "Invalid", name, detail)
    values: list[int] = codes.get("values") or []
    if not values:
        yield FieldError(f"{path}.values", "Invalid", values, "at least one value is required")
    elif len(values) > _MOST_EXIT_CODES:
        yield too_many(f"{path}.values", len(values), _MOST_EXIT_CODES)
    seen: set[int] = set()
    for index, value in enumerate(values):
        if value == 0 and operator == "In":
            yield FieldError(f"{path}.values[{index}]", "Invalid", value, "must not be 0 for the In operator")
        if value in seen:
            yield FieldError(f"{path}.values[{index}]", "Duplicate", value)
        seen.add(value)
    if any(left > right for left, right in pairwise(values)):
        yield FieldError(f"{path}.values", "Invalid", values, "must be ordered")


def _validate_pattern(patterns: Sequence[JsonObject], path: str) -> Iterator[FieldError]:
    if len(patterns) > _MOST_PATTERNS:
        yield too_many(path, len(patterns), _MOST_PATTERNS)
    for index, pattern in enumerate(patterns):
        kind = pattern.get("type", "")
        for problem in qualified_name(kind):
            yield FieldError(f"{path}[{index}].type", "Invalid", kind, problem)
        yield from _validate_choice(pattern.get("status", ""), _STATUSES, f"{path}[{index}].status")


def validate_success_policy(spec: JsonObject) -> Iterator[FieldError]:
    """Check the success policy of an Indexed Job that has one, and completions."""
    path = "spec.successPolicy.rules"
    rules = spec["successPolicy"].get("rules") or []
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        yield FieldError(path, "Required", detail=detail)
    elif len(rules) > _MOST_RULES:
        yield too_many(path, len(rules), _MOST_RULES)
    for index, rule in enumerate(rules):
        yield from _validate_success_rule(rule, spec.get("completions") or 0, f"{path}[{index}]")


def _validate_success_rule(rule: JsonObject, completions: int, path: str) -> Iterator[FieldError]:
    indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if indexes is None and count is None:
        detail = "at least one of succeededCount or succeededIndexes must be specified"
        yield FieldError(path, "Required", detail=detail)
    named = None
    if indexes is not None:
        if len(indexes) > _LONGEST_INDEXES:
            detail = f"may not be more than {_LONGEST_INDEXES} bytes"
            yield FieldError(f"{path}.succeededIndexes", "TooLong", OMITTED, detail)
        try:
            named = count_indexes(indexes, completions)
        except IndexesMalformed as error:
            yield FieldError(f"{path}.succeededIndexes", "Invalid", indexes, f"error parsing succeededIndexes: {error}")
    if count is None:
        return
    here = f"{path}.succeededCount"
    if count < 0:
        yield FieldError(here, "Invalid", count, "must be greater than or equal to 0")
    if count > completions:
        detail = f"must be less than or equal to {completions} (the number of specified completions)"
        yield FieldError(here, "Invalid", count, detail)
    if named is not None and count > named:
        detail = (
            f"must be less than or equal to {named} (the number of indexes in the specified succeededIndexes field)"
        )
        yield FieldError(here, "Invalid", count, detail)


def _validate_choice(value: str, supported: Sequence[str], path: str) -> Iterator[FieldError]:
    if not value:
        listed = " ".join(f'"{each}"' for each in supported)
        yield FieldError(path, "Required", detail=f"valid values: [{listed}]")
    elif value not in supported:
        yield unsupported(path, value, list(supported))
