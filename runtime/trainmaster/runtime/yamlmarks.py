"""Where in a YAML text a field stands: for diagnostics, which parse the text again when there is something to say."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

import yaml

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INDEX: Final = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class FieldMark:
    """A field in a text, or the nearest field around one that is missing."""

    line: int
    """In which its key stands, from 1."""

    column: int
    node: yaml.Node
    """Its value."""

    rest: str = ""
    """What of the path leads on from here, and is missing."""


def find_field(text: str, path: str, *, document: int = 0) -> FieldMark | None:
    """Follow a path like `spec.trainer.env[0].name` as far as it leads; None without YAML there.

    Args:
        path: Keys may have dots in them; capitals do not matter.
    """
    nodes = _composed(text)
    node = nodes[document] if document < len(nodes) else None
    if node is None:
        return None
    step = _Step(node.start_mark, node, path)
    while step.rest:
        following = _follow(step)
        if following is None:
            break
        step = following
    return FieldMark(step.mark.line + 1, step.mark.column + 1, step.node, step.rest)


class _Step(NamedTuple):
    mark: yaml.Mark
    node: yaml.Node
    rest: str


@functools.lru_cache(maxsize=8)
def _composed(text: str) -> list[yaml.Node | None]:
    try:
        return list(yaml.compose_all(text, Loader=_Loader))
    except yaml.YAMLError:  # JSON that is no YAML: indented with tabs
        return []


def _follow(step: _Step) -> _Step | None:
    node, path = step.node, step.rest
    if isinstance(node, yaml.SequenceNode):
        index = _INDEX.match(path)
        if index is None or int(index[1]) >= len(node.value):
            return None
        item = node.value[int(index[1])]
        return _Step(item.start_mark, item, path[index.end() :].lstrip("."))
    if not isinstance(node, yaml.MappingNode):
        return None
    # Keys may have dots in them, and some paths of the original are spelled with a capital.
    found = None
    for key, value in node.value:
        name = str(key.value)
        for spelled in (name, f"[{name}]"):
            rest = path[len(spelled) :]
            fits = path[: len(spelled)].casefold() == spelled.casefold() and (not rest or rest[0] in ".[")
            if fits and (found is None or len(rest) < len(found.rest)):
                found = _Step(key.start_mark, value, rest)
    return None if found is None else found._replace(rest=found.rest.lstrip("."))
