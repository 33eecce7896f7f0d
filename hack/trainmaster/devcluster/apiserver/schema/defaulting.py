"""Defaulting: absent fields get the values that their schema gives.

- Only what is present is entered: an absent object is not created for the sake of the defaults inside it, unless it
  has a default itself, which is then defaulted in turn.
- A null where the schema allows none counts as absent: it goes first, then the default comes.
- Values that are given are never changed.
"""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.schema.structural import ABSENT, Node
from trainmaster.runtime.jsontree import copy_tree


def default(node: Node, value: Any) -> None:
    """Fill the defaults of an object or a list in place."""
    if isinstance(value, dict):
        for name in [name for name, field in value.items() if field is None]:
            if not _accepts_null(node, name):
                del value[name]
        for name, given in node.defaults().items():
            if name not in value:
                value[name] = copy_tree(given)
        for name, field in value.items():
            if isinstance(field, dict | list):
                default(node.child(name), field)
    elif isinstance(value, list):
        items = node.items()
        for index, item in enumerate(value):
            if item is None and not items.nullable and items.default_value is not ABSENT:
                value[index] = copy_tree(items.default_value)
            default(items, value[index])


def _accepts_null(node: Node, name: str) -> bool:
    child = node.child(name)
    return child.nullable or not (child.types or child.properties)
