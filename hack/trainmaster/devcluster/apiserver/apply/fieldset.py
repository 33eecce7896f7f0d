"""`FieldSet`: a set of field paths, kept as the tree in which `FieldsV1` writes it.

Trees are never changed after they were built, so sets share them freely with each other and with objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

Tree: TypeAlias = dict[str, Any]
"""A node of a field set: path element -> node; `.` marks a node with children that is a member itself."""

SELF = "."


class FieldsInvalid(ValueError):
    """A `fieldsV1` that cannot be read; the message says where."""


@dataclass(frozen=True, slots=True)
class FieldSet:
    """An immutable set of field paths."""

    tree: Tree = field(default_factory=dict)

    @classmethod
    def decode(cls, fields: Any) -> FieldSet:
        """Read a `fieldsV1` that a client wrote; raises `FieldsInvalid`."""
        return cls(_decode(fields, ""))

    def encode(self) -> JsonObject:
        """Return the set as `fieldsV1`; the result is shared and must not be changed."""
        return self.tree

    def __bool__(self) -> bool:
        return bool(self.tree)

    def __or__(self, other: FieldSet) -> FieldSet:
        return FieldSet(_union(self.tree, other.tree)) if self.tree and other.tree else (self if self.tree else other)

    def __sub__(self, other: FieldSet) -> FieldSet:
        return FieldSet(_difference(self.tree, other.tree)) if self.tree and other.tree else self

    def __and__(self, other: FieldSet) -> FieldSet:
        return FieldSet(_intersection(self.tree, other.tree))

    def paths(self) -> Iterator[str]:
        """Return the members as readable paths, for instance `.spec.containers[name="a"].image`."""
        yield from _paths(self.tree, "")


def is_member(node: Tree) -> bool:
    """Return whether the path that leads to this node belongs to the set."""
    return not node or SELF in node


def key_element(keys: JsonObject) -> str:
    """Return the path element of a list element that is known by keys."""
    return "k:" + orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()


def value_element(value: Any) -> str:
    """Return the path element of a set's element."""
    return "v:" + orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _union(left: Tree, right: Tree) -> Tree:
    merged = dict(left)
    for element, node in right.items():
        other = merged.get(element)
        merged[element] = node if other is None else _union_node(other, node)
    return merged


def _union_node(left: Tree, right: Tree) -> Tree:
    if left is right:
        return left
    merged = _union(left, right)
    if merged and (is_member(left) or is_member(right)):
        merged[SELF] = {}
    return merged


def _difference(left: Tree, right: Tree) -> Tree:
    rest: Tree = {}
    for element, node in left.items():
        if element == SELF:
            continue
        other = right.get(element)
        if other is None:
            rest[element] = node
            continue
        below = _difference(node, other)
        keeps_self = is_member(node) and not is_member(other)
        if below and keeps_self:
            below[SELF] = {}
        if below or keeps_self:
            rest[element] = below
    return rest


def _intersection(left: Tree, right: Tree) -> Tree:
    common: Tree = {}
    for element, node in left.items():
        other = right.get(element)
        if element == SELF or other is None:
            continue
        below = _intersection(node, other)
        both = is_member(node) and is_member(other)
        if below and both:
            below[SELF] = {}
        if below or both:
            common[element] = below
    return common


def _paths(tree: Tree, prefix: str) -> Iterator[str]:
    for element in sorted(tree):
        if element == SELF:
            continue
        path = prefix + readable(element)
        if is_member(tree[element]):
            yield path
        yield from _paths(tree[element], path)


def readable(element: str) -> str:
    """Print a path element: `.name`, `[name="a"]`, `[="x"]` or `[0]`."""
    kind, _, text = element.partition(":")
    match kind:
        case "f":
            return f".{text}"
        case "k":
            keys = orjson.loads(text)
            return "[" + ",".join(f"{name}={orjson.dumps(value).decode()}" for name, value in keys.items()) + "]"
        case "v":
            return f"[={text}]"
        case _:
            return f"[{text}]"


def _decode(fields: Any, path: str) -> Tree:
    if not isinstance(fields, dict):
        raise FieldsInvalid(f"fieldsV1{path} must be an object")
    tree = {_canonical(element, path): _decode(node, f"{path}/{element}") for element, node in fields.items()}
    return {} if tree.keys() == {SELF} else tree


def _canonical(element: str, path: str) -> str:
    """Check a path element; keys and values are rewritten so that equal ones have equal texts."""
    kind, colon, text = element.partition(":")
    try:
        if kind == "k" and colon and isinstance(keys := load_json(text), dict):
            return key_element(keys)
        if kind == "v" and colon:
            return value_element(load_json(text))
    except JsonError as error:
        raise FieldsInvalid(f"fieldsV1{path} has a path element {element!r} that is not JSON after {kind}:") from error
    if element == SELF or (kind == "f" and colon) or (kind == "i" and text.isdecimal()):
        return element
    raise FieldsInvalid(f"fieldsV1{path} has an unknown path element {element!r}: use f:, k:, v: or i:")
