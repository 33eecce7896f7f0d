"""Rules of labels and of the selectors that choose by them, which stand in many kinds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import label_value, qualified_name

_ANNOTATIONS_LIMIT = 256 * 1024


def validate_labels(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Check keys and values; the errors have the path of the map."""
    for key, value in labels.items():
        yield from _validate_key(key, path)
        yield from (FieldError(path, "Invalid", value, problem) for problem in label_value(value))


def validate_annotations(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Check keys, whose case does not matter, and the size of all; the errors have the path of the map."""
    for key in annotations:
        yield from (FieldError(path, "Invalid", key, problem) for problem in qualified_name(key.lower()))
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        yield FieldError(path, "TooLong", detail=f"may not be more than {_ANNOTATIONS_LIMIT} bytes")


def validate_label_selector(selector: JsonObject, path: str) -> Iterator[FieldError]:
    """Check the labels and expressions of a LabelSelector."""
    yield from validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from _validate_expression(expression, f"{path}.matchExpressions[{index}]")


def _validate_expression(expression: JsonObject, path: str) -> Iterator[FieldError]:
    operator: str = expression.get("operator", "")
    values: Sequence[str] = expression.get("values") or ()
    match operator:
        case "In" | "NotIn":
            if not values:
                detail = "must be specified when `operator` is 'In' or 'NotIn'"
                yield FieldError(f"{path}.values", "Required", None, detail)
        case "Exists" | "DoesNotExist":
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield FieldError(f"{path}.values", "Forbidden", None, detail)
        case _:
            yield FieldError(f"{path}.operator", "Invalid", operator, "not a valid selector operator")
    yield from _validate_key(expression.get("key", ""), f"{path}.key")
    for index, value in enumerate(values):
        yield from (FieldError(f"{path}.values[{index}]", "Invalid", value, problem) for problem in label_value(value))


def _validate_key(key: str, path: str) -> Iterator[FieldError]:
    yield from (FieldError(path, "Invalid", key, problem) for problem in qualified_name(key))
