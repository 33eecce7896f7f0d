"""Pruning: fields that a schema does not describe leave the object.

- Under `x-kubernetes-preserve-unknown-fields` unknown fields stay, and described ones are still pruned inside.
- At the root and in embedded resources apiVersion, kind and metadata stay as they are, whatever the schema says.
- Lists keep all their elements: only fields are pruned.
"""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.schema.structural import Node
from trainmaster.runtime.jsontree import JsonObject

RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(node: Node, obj: JsonObject) -> list[str]:
    """Remove unknown fields from a whole object in place; returns their paths (`spec.bogus`), sorted."""
    unknown: list[str] = []
    _prune_object(node, obj, "", unknown, is_resource=True)
    return sorted(unknown)


def _prune(node: Node, value: Any, path: str, unknown: list[str]) -> None:
    if isinstance(value, dict):
        _prune_object(node, value, path, unknown, is_resource=node.embedded_resource)
    elif isinstance(value, list):
        items = node.items()
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                _prune(items, item, f"{path}[{index}]", unknown)


def _prune_object(node: Node, obj: JsonObject, path: str, unknown: list[str], *, is_resource: bool) -> None:
    for name in list(obj):
        if is_resource and name in RESOURCE_FIELDS:
            continue
        here = f"{path}.{name}" if path else name
        if not node.describes(name):
            unknown.append(here)
            del obj[name]
        elif isinstance(obj[name], dict | list):
            _prune(node.child(name), obj[name], here, unknown)
