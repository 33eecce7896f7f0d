"""Objects with the step that set each field: as YAML with a comment on each line, or as a list in JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

import yaml

from trainmaster.controller.cli.printers import print_json, to_yaml
from trainmaster.runtime.api.decoding import json_path
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.provenance import Steps, leaves

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BREAK: Final = re.compile("[\n\x85\u2028\u2029]")
"""What ends a line for YAML 1.1."""

_WIDEST: Final = 72
"""The column that comments stand in, unless all lines are shorter; those of longer lines stand behind them."""


def print_explained(explained: Sequence[tuple[JsonObject, Steps]], *, form: str) -> None:
    """Print objects, each with its steps."""
    if form == "json":
        fields = [
            {"object": f"{obj['kind']} {obj['metadata']['name']}", "path": json_path(path), "step": step}
            for obj, steps in explained
            for path, _, step in leaves(obj, steps)
        ]
        print_json(fields)
        return
    print("---\n".join(with_comments(obj, steps) for obj, steps in explained), end="")


def with_comments(obj: JsonObject, steps: Steps) -> str:
    """Write an object as YAML, with the step of each value behind it."""
    text = to_yaml(obj)
    lines, breaks = _BREAK.split(text), _BREAK.findall(text)
    comments: dict[int, dict[str, None]] = {}
    for line, step in _lines(yaml.compose(text, Loader=_Loader), steps):
        comments.setdefault(line, {})[step] = None
    column = min(max((len(lines[line]) for line in comments), default=0), _WIDEST)
    for line, told in comments.items():
        lines[line] = f"{lines[line]:{column}}  # {', '.join(told)}"
    return "".join(map("".join, zip_longest(lines, breaks, fillvalue="")))


def _lines(node: Any, steps: Steps) -> Iterator[tuple[int, str]]:
    """Iterate over the steps of a document, each with the number of the line that its comment stands in."""
    if isinstance(steps, str):
        # Behind `|` there is room for one; a text of several lines goes on below.
        is_block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        yield node.start_mark.line if is_block else node.end_mark.line, steps
    elif isinstance(node, yaml.MappingNode) and isinstance(steps, dict):
        for key, value in node.value:
            yield from _lines(value, steps[key.value])
    elif isinstance(node, yaml.SequenceNode) and isinstance(steps, list):
        for value, below in zip(node.value, steps, strict=True):
            yield from _lines(value, below)
