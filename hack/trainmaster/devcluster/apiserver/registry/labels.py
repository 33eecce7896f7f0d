"""Rules of labels and annotations, and of the selectors that choose by labels, for objects of all kinds. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import label_value, qualified_name

_ANNOTATIONS_LIMIT = 256 * 1024
_KEY_TEXT = (
    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
    " (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)


def label_key_problems(key: str) -> list[str]:
    """Return what is wrong with a qualified name, such as the key of a label."""
    return [_KEY_TEXT] if key.count("/") > 1 else qualified_name(key)


def label_key(path: str, key: str) -> Iterator[FieldError]:
    """Check the key of a label."""
    return (FieldError(path, "Invalid", key, problem) for problem in label_key_problems(key))


def labels(path: str, given: JsonObject | None) -> Iterator[FieldError]:
    """Check keys and values of labels."""
    for key, value in (given or {}).items():
        yield from label_key(path, key)
        yield from (FieldError(path, "Invalid", value, problem) for problem in label_value(value))


def object_annotations(path: str, given: JsonObject | None) -> Iterator[FieldError]:
    """Check keys, whose case does not matter, and the size of all."""
    for key in given or ():
        yield from label_key(path, key.lower())
    if sum(len(key.encode()) + len(value.encode()) for key, value in (given or {}).items()) > _ANNOTATIONS_LIMIT:
        yield FieldError(path, "TooLong", detail=f"may not be more than {_ANNOTATIONS_LIMIT} bytes")


def label_selector(path: str, selector: JsonObject | None) -> Iterator[FieldError]:
    """Check a selector; none at all is fine."""
    if selector is None:
        return
    yield from labels(f"{path}.matchLabels", selector.get("matchLabels"))
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = requirement.get("operator") or "", requirement.get("values") or []
        yield from number_of_values(here, operator, values)
        yield from label_key(f"{here}.key", requirement.get("key") or "")
        for position, value in enumerate(values):
            yield from (FieldError(f"{here}.values[{position}]", "Invalid", value, text) for text in label_value(value))


def number_of_values(path: str, operator: str, values: list[Any]) -> Iterator[FieldError]:
    """Check the operator of a requirement, and that it has values if it needs some."""
    match operator:
        case "In" | "NotIn":
            if not values:
                yield FieldError(
                    f"{path}.values", "Required", detail="must be specified when `operator` is 'In' or 'NotIn'"
                )
        case "Exists" | "DoesNotExist":
            if values:
                yield FieldError(
                    f"{path}.values",
                    "Forbidden",
                    detail="may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                )
        case _:
            yield FieldError(f"{path}.operator", "Invalid", operator, "not a valid selector operator")
