"""Canonical forms: values of built-in kinds that the API server prints in one way only, however they were written.

- Quantities: 0.5 and "0.5" are "500m", "1024Mi" is "1Gi".
- Times are in UTC, with whole seconds; those of leases and events have microseconds.

Custom resources keep what was written: their schemas know no such types.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trainmaster.devcluster.apiserver.schema.structural import Node
from trainmaster.runtime.quantity import QuantityError, canonical

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.Time"
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"


def canonicalize(node: Node, value: Any, path: str = "") -> None:
    """Rewrite an object or a list in place; raises `ValueError`, with the path, for a quantity that is none."""
    if isinstance(value, dict):
        for name, field in value.items():
            child = node.child(name)
            here = f"{path}.{name}" if path else name
            if isinstance(field, dict | list):
                canonicalize(child, field, here)
            elif child.definition:
                value[name] = _printed(child.definition, field, here)
    elif isinstance(value, list):
        items = node.items()
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                canonicalize(items, item, f"{path}[{index}]")


def _printed(definition: str, value: Any, path: str) -> Any:
    if definition == _QUANTITY:
        try:
            return canonical(value)
        except QuantityError as error:
            raise ValueError(f"{path}: {error}") from error
    if definition in (_TIME, _MICRO_TIME) and isinstance(value, str):
        moment = datetime.fromisoformat(value).astimezone(UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if definition == _MICRO_TIME else "%Y-%m-%dT%H:%M:%SZ")
    return value
