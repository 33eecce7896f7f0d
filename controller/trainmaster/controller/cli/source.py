"""Where an object comes from: in which line of which file it, or one field of it, stands.

Only diagnostics need the line of a field, so the text is parsed again when there is one. Where a field is missing, its
position is that of the nearest field around it.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any, Final

import yaml

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INDEX: Final = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Source:
    """Where an object comes from."""

    file: str
    line: int
    """In which its document starts."""

    text: str
    document: int
    """Which of the documents in the text it is, from 0."""

    within: str = ""
    """Its path in the document, if it is a part of it: `items[2]`."""

    def locate(self, path: str) -> tuple[int, int | None]:
        """Return line and column, from 1, of a field like `spec.trainer.env[0].name`."""
        nodes = _documents(self.text)
        if self.document >= len(nodes):
            return self.line, None
        mark = _find(nodes[self.document], f"{self.within}.{path}".strip("."))
        return (self.line, None) if mark is None else (mark.line + 1, mark.column + 1)


@functools.lru_cache(maxsize=8)
def _documents(text: str) -> list[yaml.Node | None]:
    try:
        return list(yaml.compose_all(text, Loader=_Loader))
    except yaml.YAMLError:  # JSON that is no YAML: indented with tabs
        return []


def _find(node: yaml.Node | None, path: str) -> Any:
    """Follow a path as far as it leads; returns the mark of the last step that could be taken."""
    mark = node.start_mark if node is not None else None
    while path:
        step = _step(node, path)
        if step is None:
            break
        mark, node, path = step
    return mark


def _step(node: yaml.Node | None, path: str) -> tuple[Any, yaml.Node, str] | None:
    """Take one step: returns the mark of what is reached, its node, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode):
        index = _INDEX.match(path)
        if index is None or int(index[1]) >= len(node.value):
            return None
        item = node.value[int(index[1])]
        return item.start_mark, item, path[index.end() :].lstrip(".")
    if not isinstance(node, yaml.MappingNode):
        return None
    # Keys may have dots in them, and some paths of the original are spelled with a capital.
    found = None
    for key, value in node.value:
        name = str(key.value)
        for spelled in (name, f"[{name}]"):
            rest = path[len(spelled) :]
            fits = path[: len(spelled)].casefold() == spelled.casefold() and (not rest or rest[0] in ".[")
            if fits and (found is None or len(rest) < len(found[2])):
                found = key.start_mark, value, rest
    return None if found is None else (found[0], found[1], found[2].lstrip("."))
