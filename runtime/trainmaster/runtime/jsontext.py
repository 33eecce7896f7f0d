"""JSON as it is read at every door: of requests and answers, of files, of what others store in the cluster.

Guarantees:
- No tree is nested more than `MAX_DEPTH` levels deep. Whoever walks one by recursion relies on that: merging, copying,
  comparing and the models take up to five frames for a level, and Python has a thousand.
- The reason why a text is refused names the place, or the bound.

How large a text may be is for each door to say; reading takes time in proportion to that.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

MAX_DEPTH: Final = 150
"""Levels of objects and lists; the deepest objects that are in use, schemas of custom resources, have about 40."""

_CONTAINERS: Final = (dict, list)


class JsonError(ValueError):
    """The text is not JSON, or is nested too deeply."""


def load_json(text: bytes | str) -> Any:
    """Read a JSON text.

    Raises:
        JsonError: It is none, or is nested more than `MAX_DEPTH` levels deep.
    """
    try:
        tree = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "depth" in error.msg:  # the decoder's own bound, which is far above ours
            raise JsonError(too_deep()) from error
        raise JsonError(f"{error.msg} at line {error.lineno} column {error.colno}") from error
    brackets = (text.count("{") + text.count("[")) if isinstance(text, str) else text.count(b"{") + text.count(b"[")
    if brackets > MAX_DEPTH and is_too_deep(tree):
        raise JsonError(too_deep())
    return tree


def is_too_deep(tree: Any) -> bool:
    """Whether a tree is nested more than `MAX_DEPTH` levels deep; walks level by level, without recursion."""
    level = [tree] if isinstance(tree, _CONTAINERS) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, _CONTAINERS)
        ]
        if not level:
            return False
    return True


def too_deep() -> str:
    """Say that something is nested too deeply."""
    return f"it is nested more than {MAX_DEPTH} levels deep"
