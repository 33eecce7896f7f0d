"""Rules of labels and of selectors by labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import forbidden, invalid, required
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import label_value, qualified_name

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
    return invalid(path, key, label_key_problems(key))


def labels(path: str, given: JsonObject | None) -> Iterator[FieldError]:
    """Check keys and values of labels."""
    for key, value in (given or {}).items():
        yield from label_key(path, key)
        yield from invalid(path, value, label_value(value))


def label_selector(path: str, selector: JsonObject | None) -> Iterator[FieldError]:
    """Check a selector; none at all is fine."""
    if selector is None:
        return
    yield from labels(f"{path}.matchLabels", selector.get("matchLabels"))
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{index}]"
        operator, values = requirement.get("operator") or "", requirement.get("values") or []
        yield from _number_of_values(here, operator, values)
        yield from label_key(f"{here}.key", requirement.get("key") or "")
        for position, value in enumerate(values):
            yield from invalid(f"{here}.values[{position}]", value, label_value(value))


def _number_of_values(path: str, operator: str, values: list[Any]) -> Iterator[FieldError]:
    match operator:
        case "In" | "NotIn":
            if not values:
                yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if values:
                yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        case _:
            yield FieldError(f"{path}.operator", "Invalid", operator, "not a valid selector operator")


def node_requirement(path: str, requirement: JsonObject, *, check_values: bool) -> Iterator[FieldError]:
    """Check what a term of a node selector wants of the labels of a node."""
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield from _number_of_values(path, operator, values)
    yield from label_key(f"{path}.key", requirement.get("key") or "")
    if check_values:
        for index, value in enumerate(values):
            yield from invalid(f"{path}.values[{index}]", value, label_value(value))
