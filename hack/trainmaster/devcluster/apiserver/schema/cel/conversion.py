"""Conversion: from JSON to the values that a rule sees.

- Fields get the names that rules use; what rules cannot see is left out, and so is a field that is null.
- Texts with a format become times, durations and bytes; whole numbers are fractions where the schema says `number`.
- Only what a rule selects is converted, because the library copies all that it is given.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

from trainmaster.devcluster.apiserver.schema.cel import escaping
from trainmaster.devcluster.apiserver.schema.cel.decltype import fields, is_int_or_string, is_visible, values
from trainmaster.runtime.jsontree import JsonObject

Convert: TypeAlias = Callable[[Any], Any]

_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h|d|w)")
_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
}


def unchanged(value: Any) -> Any:
    """Convert what needs no conversion."""
    return value


def converter(schema: JsonObject, *, is_resource: bool = False) -> Convert:
    """Return how values of a schema are converted; times and durations inside of objects stay texts."""
    if is_int_or_string(schema):
        return unchanged
    match schema.get("type"):
        case "string":
            return _FORMATS.get(schema.get("format", ""), unchanged)
        case "number":
            return float
        case "array":
            return _list_converter(schema.get("items"))
        case "object":
            known = fields(schema, is_resource=is_resource)
            if known is not None:
                return _object_converter(known)
            each = values(schema)
            return unchanged if each is None else _map_converter(each)
    return unchanged


def selector(schema: JsonObject, chosen: Iterable[list[tuple[str, str]]], *, whole: Convert) -> Convert:
    """Return how an object is converted of which a rule selects some fields: `chosen` has paths of (name, field)."""
    parts: dict[tuple[str, str], list[list[tuple[str, str]]]] = {}
    for path in chosen:
        if not path:
            return whole
        parts.setdefault(path[0], []).append(path[1:])
    known = fields(schema)
    wanted: list[tuple[str, str, Convert]] = []
    for (name, field), below in parts.items():
        child = (values(schema) if known is None else known.get(field)) or {}
        rest = unchanged if _is_time(child) else converter(child)
        wanted.append((name, field, selector(child, below, whole=rest)))

    def select(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: convert(value[field]) for name, field, convert in wanted if value.get(field) is not None}

    return select


def _list_converter(items: Any) -> Convert:
    each = converter(items) if is_visible(items) else unchanged
    if each is unchanged:
        return unchanged
    return lambda value: [item if item is None else each(item) for item in value]


def _map_converter(schema: JsonObject) -> Convert:
    each = converter(schema) if is_visible(schema) else unchanged
    if each is unchanged:
        return unchanged
    return lambda value: {name: item if item is None else each(item) for name, item in value.items()}


def _object_converter(known: Mapping[str, JsonObject]) -> Convert:
    children: dict[str, tuple[tuple[str, ...], Convert]] = {}
    for field, schema in known.items():
        convert = unchanged if _is_time(schema) else converter(schema)
        children[field] = escaping.spellings(field), convert

    def convert_object(value: Any) -> Any:
        converted: JsonObject = {}
        for field, given in value.items():
            if given is not None and field in children:
                names, convert = children[field]
                part = convert(given)
                for name in names:
                    converted[name] = part
        return converted

    return convert_object


def _is_time(schema: JsonObject) -> bool:
    return schema.get("type") == "string" and schema.get("format") in {"date", "date-time", "duration"}


def _to_time(text: str) -> datetime:
    # Python reads at most six digits of a second's fraction, and no lower-case letters.
    text = re.sub(r"(\.\d{6})\d+", r"\1", text.upper())
    read = datetime.fromisoformat(text)
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


def _to_day(text: str) -> datetime:
    read = date.fromisoformat(text)
    return datetime(read.year, read.month, read.day, tzinfo=UTC)


def _to_duration(text: str) -> timedelta:
    seconds = sum(float(amount) * _UNITS[unit] for amount, unit in _DURATION_PART.findall(text))
    return timedelta(seconds=-seconds if text.startswith("-") else seconds)


_FORMATS: Mapping[str, Convert] = {
    "byte": base64.b64decode,
    "date": _to_day,
    "date-time": _to_time,
    "duration": _to_duration,
}
