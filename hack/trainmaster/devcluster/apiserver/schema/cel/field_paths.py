"""The `fieldPath` of a rule: a JSON path of fields and map keys (`.a.b`, `['a-b'].c`), checked by the schema."""

from __future__ import annotations

import re

from trainmaster.runtime.jsontree import JsonObject

_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\['(?P<quoted>(?:\\.|[^'\\])*)'\]")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class PathInvalid(ValueError):
    """The text is no path, or leads to nothing that the schema knows."""


def normalize(path: str, schema: JsonObject) -> str:
    """Return the path as it stands in messages: `a.b`, with map keys in brackets; raises PathInvalid."""
    steps = ""
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise PathInvalid("expected [ or . and then a name" if position else "a path begins with . or ['")
        position = match.end()
        name = match["name"] if match["name"] is not None else _unquoted(match["quoted"])
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if properties and name in properties:
            schema = properties[name]
            steps += f".{name}"
        elif not properties and isinstance(others, dict):
            schema = others
            steps += f"[{name}]"
        else:
            raise PathInvalid("does not refer to a valid field")
    return steps.removeprefix(".")


def _unquoted(text: str) -> str:
    def original(match: re.Match[str]) -> str:
        if match.group(1) not in _ESCAPES:
            raise PathInvalid(f"invalid escape char {match.group()}")
        return _ESCAPES[match.group(1)]

    return re.sub(r"\\(.)", original, text)
