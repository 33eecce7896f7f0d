"""Declared types: the part of a schema that rules can see, its types in them, and how its fields are called.

- Fields are visible where the schema names them; the keys of a map always are.
- Of the metadata of a whole resource, at the root or embedded, rules see the name and generateName only.
- What the schema leaves untyped (`x-kubernetes-preserve-unknown-fields`) is invisible. An int-or-string is of any type.
- CEL names are identifiers, JSON names are not, so they are escaped: `a-b` is `a__dash__b` in a rule, and a reserved
  word such as `namespace` is `__namespace__`. Reserved words that CEL can read after a dot may also stand as they are,
  as in Kubernetes 1.33.
- The `fieldPath` of a rule is a JSON path of fields and map keys (`.a.b`, `['a-b'].c`), checked by the schema.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from trainmaster.runtime.jsontree import JsonObject

_RESERVED = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ORIGINALS = {escape: text for text, escape in _ESCAPES.items()}
_SPECIAL = re.compile(r"__|[-./]")
_ESCAPED = re.compile(r"__[^_]+__")
_EXPRESSIBLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")


def escape(name: str) -> str | None:
    """Return the name of a field in a rule, or None if rules cannot reach a field of this name."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _EXPRESSIBLE.fullmatch(name):
        return None
    return _SPECIAL.sub(lambda match: _ESCAPES[match.group()], name)


def find_field(name: str, fields: Container[str]) -> str | None:
    """Return which of the fields a rule means by a name, if any."""
    if name in _RESERVED:
        return name if name in fields else None
    if name.startswith("__") and name.endswith("__") and name[2:-2] in _RESERVED:
        original = name[2:-2]
    else:
        original = _ESCAPED.sub(lambda match: _ORIGINALS.get(match.group(), match.group()), name)
    # A name that should have been escaped is no name of the field: `a__b` is not the field a__b.
    return original if original in fields and escape(original) == name else None


def spellings(name: str) -> tuple[str, ...]:
    """Return every name by which rules can reach a field."""
    escaped = escape(name)
    if escaped is None:
        return ()
    return (escaped, name) if name in _RESERVED else (escaped,)


_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\['(?P<quoted>(?:\\.|[^'\\])*)'\]")
_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class PathInvalid(ValueError):
    """The text is no path, or leads to nothing that the schema knows."""


def normalize_field_path(path: str, schema: JsonObject) -> str:
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
        if match.group(1) not in _CHARACTERS:
            raise PathInvalid(f"invalid escape char {match.group()}")
        return _CHARACTERS[match.group(1)]

    return re.sub(r"\\(.)", original, text)


_STRING: JsonObject = {"type": "string"}
_OF_RESOURCES: JsonObject = {
    "apiVersion": _STRING,
    "kind": _STRING,
    "metadata": {"type": "object", "properties": {"name": _STRING, "generateName": _STRING}},
}
_FORMATS = {"date": "timestamp", "date-time": "timestamp", "duration": "duration", "byte": "bytes"}
_SCALARS = {"boolean": "bool", "integer": "int", "number": "double", "string": "string"}
SCALAR_TYPES = frozenset({*_FORMATS.values(), *_SCALARS.values()})
"""The types without parts."""


class Undefined(Exception):
    """A rule selects a field that it cannot; `index` says which of the selected names is the wrong one."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


def is_visible(schema: Any) -> bool:
    """Return whether rules can see values of this schema."""
    return isinstance(schema, dict) and (is_int_or_string(schema) or bool(schema.get("type")))


def is_int_or_string(schema: JsonObject) -> bool:
    """Return whether a value is a number or a text; rules find out at run time."""
    return schema.get("x-kubernetes-int-or-string") is True


def fields(schema: JsonObject, *, is_resource: bool = False) -> Mapping[str, JsonObject] | None:
    """Return the schemas of the fields that rules see; None if this is not an object with fields."""
    if schema.get("type") != "object" or is_int_or_string(schema):
        return None
    named = {name: child for name, child in schema.get("properties", {}).items() if is_visible(child)}
    if is_resource or schema.get("x-kubernetes-embedded-resource") is True:
        return named | _OF_RESOURCES
    if not named and isinstance(schema.get("additionalProperties"), dict):
        return None
    return named


def values(schema: JsonObject) -> JsonObject | None:
    """Return the schema of the values of a map; None if this is no map."""
    others = schema.get("additionalProperties")
    return others if isinstance(others, dict) and fields(schema) is None else None


def cel_type(schema: JsonObject) -> str:
    """Return the type that a value has in a rule."""
    if is_int_or_string(schema):
        return "dyn"
    declared = schema.get("type")
    if declared == "string":
        return _FORMATS.get(schema.get("format", ""), "string")
    if declared == "array":
        items: Any = schema.get("items")
        return f"list<{cel_type(items) if is_visible(items) else 'dyn'}>"
    if declared == "object":
        each = values(schema)
        return f"map<string,{cel_type(each) if each is not None and is_visible(each) else 'dyn'}>"
    return _SCALARS.get(str(declared), "dyn")


def follow(schema: JsonObject, names: Sequence[str], *, is_resource: bool) -> list[tuple[str, JsonObject]]:
    """Return the field, as JSON calls it, and the schema behind each selected name; raises Undefined."""
    found: list[tuple[str, JsonObject]] = []
    for index, name in enumerate(names):
        is_whole = is_resource and not index
        known = fields(schema, is_resource=is_whole)
        if known is not None:
            field = find_field(name, known)
            if field is None:
                raise Undefined(index, f"undefined field '{name}'")
            schema = known[field]
        elif (each := values(schema)) is not None:
            field, schema = name, each
        else:
            if (kind := cel_type(schema)) == "dyn":
                return found
            raise Undefined(
                index, f"type '{kind.replace('<', '(').replace('>', ')')}' does not support field selection"
            )
        found.append((field, schema))
    return found
