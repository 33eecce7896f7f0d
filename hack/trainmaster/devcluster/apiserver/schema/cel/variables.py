"""Variables: which ones an expression gets, and their values for an object.

- Each scalar field that a rule selects (`self.a.b`) becomes a variable of its own (`self_a_b`), with its type: so the
  compiler finds comparisons that make no sense.
- JSON is converted to the values that a rule sees. Fields get the names that rules use; what rules cannot see is left
  out, and so is a field that is null. Texts with a format become times, durations and bytes; whole numbers are
  fractions where the schema says `number`.
- Only what a rule selects is converted, because the library copies all that it is given.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

from trainmaster.devcluster.apiserver.schema.cel import decltype
from trainmaster.devcluster.apiserver.schema.cel.decltype import fields, is_int_or_string, is_visible, values
from trainmaster.devcluster.apiserver.schema.cel.parser import Selection, is_shadowed, tokens
from trainmaster.devcluster.apiserver.schema.cel.program import EvaluationFailed, marked
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
        children[field] = decltype.spellings(field), convert

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


class Variable:
    """What an expression needs of `self` or `oldSelf`."""

    def __init__(
        self,
        name: str,
        text: str,
        selections: Sequence[Selection],
        schema: JsonObject,
        *,
        is_resource: bool,
    ) -> None:
        self.types: dict[str, str] = {}
        """The fields that are variables of their own."""
        self._name = name
        self._fields: dict[str, tuple[tuple[str, ...], Convert]] = {}
        self._replaced: list[Selection] = []
        taken = {token.text for token in tokens(text)}
        chosen: list[list[tuple[str, str]]] = []
        if is_shadowed(text, name):
            # Which selections are from the macro's variable cannot be told.
            selections = ()
            chosen.append([])
        for selection in selections:
            try:
                path = decltype.follow(schema, selection.names, is_resource=is_resource)
            except decltype.Undefined as error:
                raise marked(text, selection.positions[error.index], str(error)) from error
            own_name = "_".join((name, *selection.names))
            fields = tuple(field for field, _ in path)
            declared = decltype.cel_type(path[-1][1]) if path else ""
            # self.a_b and self.a.b would be one name.
            is_free = own_name not in taken and self._fields.get(own_name, (fields,))[0] == fields
            if declared in decltype.SCALAR_TYPES and selection.is_plain and is_free:
                self.types[own_name] = declared
                self._fields[own_name] = fields, converter(path[-1][1])
                self._replaced.append(selection)
            else:
                chosen.append([(spelled, field) for spelled, (field, _) in zip(selection.names, path, strict=False)])
        self._convert = converter(schema, is_resource=is_resource)
        if is_resource:
            schema = {**schema, "properties": dict(decltype.fields(schema, is_resource=True) or {})}
        self._is_used = bool(chosen)
        self._select = selector(schema, chosen, whole=self._convert)

    def rewrite(self, text: str) -> str:
        """Return the expression with the names of the variables in place of selections; it keeps its length."""
        for selection in self._replaced:
            name = text[selection.start : selection.end].replace(".", "_")
            text = text[: selection.start] + name + text[selection.end :]
        return text

    def values(self, value: Any) -> dict[str, Any]:
        """Return the variables for a value; raises EvaluationFailed if that is not what its schema says."""
        try:
            given = {self._name: self._select(value)} if self._is_used else {}
            for name, (path, convert) in self._fields.items():
                found = value
                for field in path:
                    found = found.get(field) if isinstance(found, dict) else None
                if found is not None:
                    given[name] = convert(found)
        except (AttributeError, TypeError, ValueError) as error:
            # Ratcheting lets such values pass that were there before.
            raise EvaluationFailed(f"invalid data: {error}") from error
        return given

    def optional(self, value: Any) -> dict[str, Any]:
        """Return a map that holds the whole value, if there is one, under `value`."""
        if value is None:
            return {}
        try:
            return {"value": self._convert(value)}
        except (AttributeError, TypeError, ValueError) as error:
            raise EvaluationFailed(f"invalid data: {error}") from error

    def missing(self, name: str, value: Any) -> str:
        """Return the field for want of which a variable has no value."""
        for field in self._fields[name][0] if name in self._fields else ():
            value = value.get(field) if isinstance(value, dict) else None
            if value is None:
                return field
        return name
