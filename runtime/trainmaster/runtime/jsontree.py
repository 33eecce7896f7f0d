"""JSON trees: the shape in which Kubernetes objects travel through Trainmaster.

Objects that come from a cache are shared and must never be changed; whoever wants to change one takes a copy first.
"""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object, for instance a whole Kubernetes resource."""


def copy_tree(node: Any) -> Any:
    """Copy a JSON tree deeply; several times faster than `copy.deepcopy`, which also has to think of cycles."""
    if isinstance(node, dict):
        return {key: copy_tree(value) for key, value in node.items()}
    if isinstance(node, list):
        return [copy_tree(value) for value in node]
    return node
