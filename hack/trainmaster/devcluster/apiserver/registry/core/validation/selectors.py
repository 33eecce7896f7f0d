"""Rules of what selects nodes by their labels and fields."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import invalid, required
from trainmaster.devcluster.apiserver.registry.labels import label_key, number_of_values
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import label_value


def node_requirement(path: str, requirement: JsonObject, *, check_values: bool) -> Iterator[FieldError]:
    """Check what a term of a node selector wants of the labels of a node."""
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield from number_of_values(path, operator, values)
    yield from label_key(f"{path}.key", requirement.get("key") or "")
    if check_values:
        for index, value in enumerate(values):
            yield from invalid(f"{path}.values[{index}]", value, label_value(value))
