"""JSON trees as block YAML, the way programs in Go write it: keys sorted, lists not indented below their key.

Guarantees:
- Every reader reads the same tree, whether it follows YAML 1.1 (PyYAML, Kubernetes) or 1.2: whatever one of them could
  take for something else than a string is in quotes, whatever one of them refuses is escaped.
- A text of several lines stands as it is (`|`) where that is safe.
- Lines are not folded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from trainmaster.runtime.jsontree import JsonObject

_WORD: Final = r"(?:[A-Za-z0-9._/@+=,-]|:(?=[A-Za-z0-9./]))"
_PLAIN: Final = re.compile(rf"[A-Za-z/]{_WORD}*(?: {_WORD}+)*")
"""Words that can stand without quotes: no indicator at the start, no colon or number sign that means something."""

_OTHER_TYPES: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that some reader takes for a boolean or for nothing, in any case."""

_UNSAFE: Final = re.compile("[^ -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""Control characters, what YAML 1.1 takes for a line break, the byte order mark, and what is no character."""

_TO_ESCAPE: Final = re.compile(f'["\\\\]|{_UNSAFE.pattern}')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONGEST_KEY: Final = 1000
"""Characters; a longer key needs a question mark, for readers look for its colon only so far."""


def dump_yaml(tree: Any) -> str:
    """Write a JSON tree, no more deeply nested than `MAX_DEPTH`, as a YAML document."""
    if isinstance(tree, dict) and tree:
        return "\n".join([*_mapping(tree, ""), ""])
    if isinstance(tree, list) and tree:
        return "\n".join([*_sequence(tree, ""), ""])
    return f"{_leaf(tree, '  ')}\n"


def _mapping(mapping: JsonObject, indent: str) -> Iterator[str]:
    for key in sorted(mapping):
        value, text = mapping[key], _text(key)
        if len(text) > _LONGEST_KEY:
            yield f"{indent}? {text}"
            text = ""
        if isinstance(value, dict) and value:
            yield f"{indent}{text}:"
            yield from _mapping(value, f"{indent}  ")
        elif isinstance(value, list) and value:
            yield f"{indent}{text}:"
            yield from _sequence(value, indent)
        else:
            yield f"{indent}{text}: {_leaf(value, indent + '  ')}"


def _sequence(sequence: list[Any], indent: str) -> Iterator[str]:
    for value in sequence:
        if isinstance(value, dict) and value:
            lines = _mapping(value, f"{indent}  ")
        elif isinstance(value, list) and value:
            lines = _sequence(value, f"{indent}  ")
        else:
            yield f"{indent}- {_leaf(value, indent + '  ')}"
            continue
        # The first line begins beside the dash, which takes the place of its indentation.
        yield f"{indent}- {next(lines)[len(indent) + 2 :]}"
        yield from lines


def _leaf(value: Any, indent: str) -> str:
    match value:
        case str():
            return _literal(value, indent) or _text(value)
        case float():
            text = repr(value)
            # To YAML 1.1 a number with an exponent needs a point.
            return text if "." in text else text.replace("e", ".0e")
        case _:
            return json.dumps(value)


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _OTHER_TYPES:
        return text
    return f'"{_TO_ESCAPE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    short = _SHORT_ESCAPES.get(character)
    return short if short is not None else f"\\u{ord(character):04x}"


def _literal(text: str, indent: str) -> str | None:
    """Write a text of several lines as it is, or return None where that would not be safe."""
    body = text.removesuffix("\n")
    if "\n" not in text or not body or body[0] in " \n" or body[-1] in " \n" or _UNSAFE.search(body.replace("\n", "")):
        return None
    lines = [f"{indent}{line}" if line else "" for line in body.split("\n")]
    return "\n".join(["|" if text.endswith("\n") else "|-", *lines])
