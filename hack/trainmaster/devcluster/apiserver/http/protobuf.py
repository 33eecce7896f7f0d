"""Protobuf request bodies, as kubectl from 1.32 on and clients written in Go send them for built-in kinds.

Guarantees:
- what comes out is the JSON form of the same object: names, times, quantities, binary data, and what JSON leaves out;
- fields that the table does not know, from a newer client, are passed over, as a real server does;
- a kind without a table is refused with a hint, a body that is not what it claims to be with a 400: nothing is guessed.

`protobuf.json` beside this module is the table: by message and field number, which are those of the `generated.proto`
files of Kubernetes, `name type`. The type is one of

    string bool int bytes NAME      a scalar, or the message of that name
    T!                              always part of the JSON form
    T?                              a pointer: zero is a value, absence is another
    []T, {}T                        a list, a map from strings
    +NAME                           an embedded message, whose fields belong to this one

Answers are never protobuf: clients that send it list JSON among what they accept.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import orjson

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject

PROTOBUF = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\0"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Malformed(Exception):
    """The bytes are no message, or not of the type that the table says."""


def decode_protobuf(body: bytes) -> JsonObject:
    """Decode an object; raises a StatusError if it cannot be read."""
    if not body.startswith(_MAGIC):
        raise errors.bad_request("the body is not a Kubernetes protobuf message: it does not begin with 'k8s\\0'")
    try:
        envelope = dict(_members(body[len(_MAGIC) :]))
        api_version, kind = _type_meta(_as_bytes(envelope.get(1, b"")))
        definition = _definition_of(api_version, kind)
        if definition not in _table():
            raise _unknown(api_version, kind)
        return {"apiVersion": api_version, "kind": kind} | _message(_as_bytes(envelope.get(2, b"")), definition)
    except (_Malformed, IndexError, OverflowError, JsonError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"the body is not a valid protobuf message: {error}") from error


def _type_meta(content: bytes) -> tuple[str, str]:
    members = dict(_members(content))
    return _as_bytes(members.get(1, b"")).decode(), _as_bytes(members.get(2, b"")).decode()


def _definition_of(api_version: str, kind: str) -> str:
    """Name the OpenAPI definition of a kind; Kubernetes names packages by the first word of their group."""
    if kind == "DeleteOptions":  # comes under the name of whatever group it is about
        return f"{_META}.DeleteOptions"
    group, _, version = api_version.rpartition("/")
    return f"io.k8s.api.{group.partition('.')[0] or 'core'}.{version}.{kind}"


def _unknown(api_version: str, kind: str) -> StatusError:
    message = (
        f"the embedded cluster does not read {kind or 'objects without a kind'} of {api_version or 'no version'} in "
        "protobuf: write the object to a file and send it with `kubectl create -f`"
    )
    return StatusError(415, "UnsupportedMediaType", message)


@dataclass(frozen=True, slots=True)
class _Field:
    """One line of the table."""

    name: str
    type: str
    shape: str = ""
    """`[]`, `{}`, `+` or nothing."""

    keeps_zero: bool = False

    @classmethod
    def parse(cls, text: str) -> _Field:
        name, _, described = text.partition(" ")
        bare = described.rstrip("!?")
        shape = next((mark for mark in ("[]", "{}", "+") if bare.startswith(mark)), "")
        return cls(name, bare.removeprefix(shape), shape, keeps_zero=bare != described)


@functools.cache
def _table() -> Mapping[str, Mapping[str, str]]:
    content: dict[str, dict[str, str]] = orjson.loads(files(__package__).joinpath("protobuf.json").read_bytes())
    return content


@functools.cache
def _fields(definition: str) -> dict[int, _Field]:
    return {int(number): _Field.parse(text) for number, text in _table()[definition].items()}


def _message(content: bytes, definition: str) -> JsonObject:
    fields = _fields(definition)
    result: JsonObject = {}
    for number, value in _members(content):
        field = fields.get(number)
        if field is None:
            continue
        match field.shape:
            case "[]":
                result.setdefault(field.name, []).append(_value(value, field.type))
            case "{}":
                entry = dict(_members(_as_bytes(value)))
                key = _as_bytes(entry.get(1, b"")).decode()
                result.setdefault(field.name, {})[key] = _value(entry.get(2, b""), field.type)
            case "+":
                result |= _message(_as_bytes(value), field.type)
            case _:
                decoded = _value(value, field.type)
                # Go writes every plain field, set or not; in JSON those that were not set are left out.
                if decoded is not None and (field.keeps_zero or isinstance(decoded, dict) or decoded):
                    result[field.name] = decoded
    return result


def _value(value: int | bytes, name: str) -> Any:
    if name in _SCALARS:
        return _SCALARS[name](value)
    return _message(_as_bytes(value), name)


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Malformed("a number stands where a text or message belongs")
    return value


def _integer(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise _Malformed("a text or message stands where a number belongs")
    return value - (1 << 64) if value >> 63 else value


def _text(value: int | bytes) -> str:
    return _as_bytes(value).decode()


def _quantity(value: int | bytes) -> str:
    return _text(dict(_members(_as_bytes(value))).get(1, b""))


def _int_or_string(value: int | bytes) -> int | str:
    members = dict(_members(_as_bytes(value)))
    return _text(members.get(3, b"")) if members.get(1) else _integer(members.get(2, 0))


def _json(value: int | bytes) -> Any:
    raw = _as_bytes(dict(_members(_as_bytes(value))).get(1, b""))
    return load_json(raw) if raw else None


def _texts(value: int | bytes) -> list[str]:
    return [_text(each) for number, each in _members(_as_bytes(value)) if number == 1]


def _time(value: int | bytes, *, precision: str) -> str | None:
    members = dict(_members(_as_bytes(value)))
    if not members:
        return None
    passed = timedelta(seconds=_integer(members.get(1, 0)), microseconds=_integer(members.get(2, 0)) // 1000)
    return (_EPOCH + passed).isoformat(timespec=precision).replace("+00:00", "Z")


_SCALARS: dict[str, Callable[[int | bytes], Any]] = {
    "string": _text,
    "bool": lambda value: bool(_integer(value)),
    "int": _integer,
    "bytes": lambda value: base64.b64encode(_as_bytes(value)).decode(),
    # Messages whose JSON form is not an object.
    f"{_META}.Time": lambda value: _time(value, precision="seconds"),
    f"{_META}.MicroTime": lambda value: _time(value, precision="microseconds"),
    f"{_META}.FieldsV1": _json,
    f"{_META}.Verbs": _texts,
    "io.k8s.api.authentication.v1.ExtraValue": _texts,
    "io.k8s.api.authorization.v1.ExtraValue": _texts,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _quantity,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _json,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
}


def _members(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Split a message into its fields: numbers as they are, everything else as bytes."""
    position = 0
    while position < len(content):
        tag, position = _varint(content, position)
        match tag & 7:
            case 0:
                value, position = _varint(content, position)
                yield tag >> 3, value
                continue
            case 2:
                length, position = _varint(content, position)
            case 1:
                length = 8
            case 5:
                length = 4
            case wire_type:
                raise _Malformed(f"wire type {wire_type} at byte {position}")
        if position + length > len(content):
            raise _Malformed("it ends in the middle of a field")
        yield tag >> 3, content[position : position + length]
        position += length


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(content):
            raise _Malformed("it ends in the middle of a number")
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & ((1 << 64) - 1), position
    raise _Malformed("a number has more than ten bytes")
