"""What is kept of an object that cannot be read: its metadata, as PartialObjectMetadata has it, and the reason.

API servers keep and tell more than anybody reads: ten thousand levels, halves of characters, numbers beyond any float,
in whatever a schema leaves open. One such object must not hold up the rest of its collection.

Guarantees:
- The metadata of what is kept has the types that the API promises; what has not is left out.
- Of managedFields nothing is needed: an object in which only they cannot be read is kept whole, without them.
- What is not even JSON is an error; a body that was cut off is never taken for an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from trainmaster.controller.kube.rest.errors import shorten
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import UNREADABLE, JsonObject

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR: Final = re.compile(rb"[-+0-9.A-Za-z]+")
_OPENING: Final = b"[{"
_BRACKETS: Final = re.compile(
    rb'(?:[^][{}"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\[[^][{}"]*+\]|\{\})*([\[{]+|[\]}]+)', re.DOTALL
)
"""The next brackets that matter; strings, scalars and what holds nothing else are passed over.

The repetition of the group must not be possessive (`*+`): Python 3.11.2 misses matches then.
"""


class Span(NamedTuple):
    """Where a value stands in a text."""

    start: int
    end: int


def partial_metadata(obj: JsonObject, reason: str) -> JsonObject:
    """Return what is kept of an object that cannot be used as a whole, and why."""
    return {
        **{name: obj[name] for name in ("apiVersion", "kind") if isinstance(obj.get(name), str)},
        "metadata": {"uid": "", **well_typed(obj["metadata"])},
        UNREADABLE: reason,
    }


def well_typed(metadata: JsonObject) -> JsonObject:
    """Return the part of some metadata that is of use to readers and has the types that the API promises."""
    return {name: metadata[name] for name, fits in _FIELDS.items() if name in metadata and fits(metadata[name])}


def is_well_typed(metadata: JsonObject) -> bool:
    """Whether metadata has the types that the API promises, where readers look."""
    for name, value in metadata.items():
        if name in _TEXT_FIELDS:
            if type(value) is not str and value is not None:
                return False
        elif name in _FIELDS and not _FIELDS[name](value):
            return False
    return True


def _is_text(value: Any) -> bool:
    return value is None or type(value) is str


def _is_number(value: Any) -> bool:
    return value is None or type(value) is int


def _are_texts(value: Any) -> bool:
    return value is None or (type(value) is list and _holds_texts(value))


def _is_map(value: Any) -> bool:
    return value is None or (type(value) is dict and _holds_texts(value.values()))


def _holds_texts(values: Iterable[Any]) -> bool:
    for each in values:  # noqa: SIM110 - a generator costs three times as much, and this is asked of every event
        if type(each) is not str:
            return False
    return True


def _are_references(value: Any) -> bool:
    return value is None or (type(value) is list and all(map(_is_reference, value)))


def _is_reference(value: Any) -> bool:
    return (
        type(value) is dict
        and type(value.get("apiVersion")) is type(value.get("kind")) is type(value.get("name")) is str
        and _is_text(value.get("uid"))
    )


_TEXT_FIELDS: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"}
)
_FIELDS: Final[dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(_TEXT_FIELDS, _is_text),
    "generation": _is_number,
    **dict.fromkeys(("labels", "annotations"), _is_map),
    "finalizers": _are_texts,
    "ownerReferences": _are_references,
}


def read_object(text: bytes, start: int = 0) -> tuple[JsonObject, int]:
    """Read an object that the decoder refuses: whole without its managedFields, or what is kept of it.

    Returns:
        The object and where it ends.

    Raises:
        JsonError: It is no JSON object, or has no metadata.
    """
    members, end = _members(text, start)
    return _read_object(text, members), end


def _read_object(text: bytes, members: dict[str, Span]) -> JsonObject:
    if "metadata" not in members:
        raise JsonError("an object without metadata cannot be read in parts")
    fields, _ = _members(text, members["metadata"].start)
    metadata, lost = _read(text, fields)
    lost.pop("managedFields", None)
    lost = {f"metadata.{name}": reason for name, reason in lost.items()}
    obj, others = _read(text, {name: span for name, span in members.items() if name != "metadata"})
    obj["metadata"] = metadata
    lost |= others
    if lost:
        reason = "; ".join(f"{name}: {reason}" for name, reason in list(lost.items())[:3])
        obj = partial_metadata(obj, shorten(reason, limit=300))
    return obj


def read_frame(text: bytes) -> JsonObject:
    """Read a watch frame that the decoder refuses because of the object in it; `JsonError`: it is none."""
    members, end = _members(text, 0)
    if "object" not in members or _after(_SPACE, text, end) != len(text):
        raise _broken(end)
    obj, _ = read_object(text, members.pop("object").start)
    frame, lost = _read(text, members)
    if lost:
        raise JsonError("; ".join(lost.values()))
    return {**frame, "object": obj}


def read_items(text: bytes, start: int) -> Iterator[tuple[Any, int]]:
    """Read the items of a list, one by one, from the place of the first one on; each with the place after it.

    Raises:
        JsonError: They are not the items of a list, or one has no metadata.
    """
    position = _after(_SPACE, text, start)
    while text[position : position + 1] not in (b"]", b""):
        members, end = _members(text, position)
        try:
            item = load_json(text[position:end])
        except JsonError:
            item = _read_object(text, members)
        position = _after(_SPACE, text, end)
        if text[position : position + 1] == b",":
            position = _after(_SPACE, text, position + 1)
        elif text[position : position + 1] != b"]":
            raise _broken(position)
        yield item, position
    if position >= len(text):
        raise _broken(position)


def _read(text: bytes, members: dict[str, Span]) -> tuple[JsonObject, dict[str, str]]:
    """Read the members of an object; returns those that can be read, and why the others cannot."""
    found: JsonObject = {}
    lost: dict[str, str] = {}
    for name, span in members.items():
        try:
            found[name] = load_json(text[span.start : span.end])
        except JsonError as error:
            lost[name] = str(error)
    return found, lost


def _members(text: bytes, start: int) -> tuple[dict[str, Span], int]:
    """Find the members of the object that begins somewhere, and where it ends; reads nothing but their names."""
    position = _after(_SPACE, text, start)
    if text[position : position + 1] != b"{":
        raise _broken(position)
    members: dict[str, Span] = {}
    position = _after(_SPACE, text, position + 1)
    while text[position : position + 1] != b"}":
        name_end = _after(_STRING, text, position)
        name = load_json(text[position:name_end])
        position = _after(_SPACE, text, name_end)
        if text[position : position + 1] != b":":
            raise _broken(position)
        position = _after(_SPACE, text, position + 1)
        end = _end_of(text, position)
        members[name] = Span(position, end)
        position = _after(_SPACE, text, end)
        if text[position : position + 1] == b",":
            position = _after(_SPACE, text, position + 1)
        elif text[position : position + 1] != b"}":
            raise _broken(position)
    return members, position + 1


def _end_of(text: bytes, start: int) -> int:
    """Find where the value that begins somewhere ends, however deep it is nested."""
    first = text[start : start + 1]
    if first == b'"':
        return _after(_STRING, text, start)
    if first not in (b"[", b"{"):
        return _after(_SCALAR, text, start)
    depth, position = 1, start + 1
    for found in _BRACKETS.finditer(text, position):
        if found.start() != position:
            break  # something was skipped
        begin, position = found.span(1)
        if text[begin] in _OPENING:
            depth += position - begin
        else:
            depth -= position - begin
            if depth <= 0:
                return position + depth
    raise _broken(position)


def _after(pattern: re.Pattern[bytes], text: bytes, start: int) -> int:
    match = pattern.match(text, start)
    if match is None:
        raise _broken(start)
    return match.end()


def _broken(position: int) -> JsonError:
    return JsonError(f"it is no JSON at byte {position}")
