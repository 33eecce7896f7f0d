"""Write the table of protobuf fields that the embedded cluster decodes request bodies by; `--check` only compares.

Source: a kubectl binary, in which the Go code of the Kubernetes API keeps the descriptors of its .proto files
compressed. They know what JSON does not tell: field numbers, and which fields are pointers. The published OpenAPI
definitions tell the rest: which fields JSON must have, and which messages are embedded and have no name in JSON.

    python hack/extract_protobuf_table.py /path/to/kubectl [--check]

A field of the table reads `name type`, the type being one of

    string bool int bytes NAME      a scalar, or the message of that name
    T!                              always part of the JSON form
    T?                              a pointer: zero is a value, absence is another
    []T, {}T                        a list, a map from strings
    +NAME                           an embedded message, whose fields belong to this one
"""

from __future__ import annotations

import argparse
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import kubernetes_schemas

TARGET = Path(__file__).parent / "trainmaster" / "devcluster" / "apiserver" / "http" / "protobuf.json"

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_ROOTS = (
    *(name for name in kubernetes_schemas.KINDS if "admissionregistration" not in name and "apiextensions" not in name),
    *(f"io.k8s.api.authentication.v1.{kind}" for kind in ("SelfSubjectReview", "TokenRequest", "TokenReview")),
    *(
        f"io.k8s.api.authorization.v1.{kind}"
        for kind in (
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        )
    ),
    "io.k8s.api.autoscaling.v1.Scale",
    f"{_META}.DeleteOptions",
)
# Read by code instead of by the table: their JSON form is not an object.
_SPECIAL = frozenset(
    {
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        f"{_META}.FieldsV1",
        f"{_META}.MicroTime",
        f"{_META}.Time",
        f"{_META}.Verbs",
        "io.k8s.api.authentication.v1.ExtraValue",
        "io.k8s.api.authorization.v1.ExtraValue",
    }
)
_SCALARS = {3: "int", 5: "int", 8: "bool", 9: "string", 12: "bytes"}
_MESSAGE, _REPEATED = 11, 3
_GZIP = re.compile(rb"\x1f\x8b\x08\0\0\0\0\0[\x00\x02]\xff")
_LARGEST = 1 << 20
_NULLABLE = 65001
"""The option of gogoproto; false for what is not a pointer in Go."""


@dataclass
class Field:
    """A field of a message."""

    name: str = ""
    number: int = 0
    type: int = 0
    message: str = ""
    repeated: bool = False
    pointer: bool = True


@dataclass
class Message:
    """A message; the entries of maps are messages, too."""

    fields: list[Field] = field(default_factory=list)
    is_entry: bool = False


def main() -> int:
    """Be the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kubectl", type=Path, help="a kubectl binary; the newest one knows the most fields")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file differs")
    arguments = parser.parse_args()
    content = kubernetes_schemas.one_per_line(_table(_messages(arguments.kubectl.read_bytes()))) + "\n"
    if not arguments.check:
        TARGET.write_text(content, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == content:
        return 0
    print(f"{TARGET} differs from what {arguments.kubectl} says", file=sys.stderr)
    return 1


def _table(messages: dict[str, Message]) -> dict[str, dict[str, str]]:
    definitions = kubernetes_schemas.load(*_ROOTS)
    table: dict[str, dict[str, str]] = {}
    waiting = [name for name in _ROOTS if name in messages]  # this kubectl cannot send what it does not know
    while waiting:
        name = waiting.pop()
        if name in table or name in _SPECIAL:
            continue
        definition = definitions.get(name, {})
        table[name] = {}
        names = {known.lower(): known for known in definition.get("properties", ())}
        for each in messages[name].fields:
            each.name = names.get(each.name.lower(), each.name)  # `uID`, for one, is `uid` in JSON
            described = _described(each, messages, definition)
            table[name][str(each.number)] = f"{each.name} {described}"
            if (referred := described.strip("[]{}+!?")) not in _SCALARS.values():
                waiting.append(referred)
    return table


def _described(each: Field, messages: dict[str, Message], definition: kubernetes_schemas.Node) -> str:
    target = messages.get(each.message)
    if target is not None and target.is_entry:
        return "{}" + _type(target.fields[1])
    if each.repeated:
        return "[]" + _type(each)
    properties = definition.get("properties", {})
    if target is not None and properties and each.name not in properties:
        return "+" + _type(each)
    if each.name in definition.get("required", ()):
        return _type(each) + "!"
    return _type(each) + ("?" if each.pointer else "")


def _type(each: Field) -> str:
    return each.message if each.type == _MESSAGE else _SCALARS[each.type]


# Reading descriptors: google/protobuf/descriptor.proto, of which a handful of fields matter here.


def _messages(binary: bytes) -> dict[str, Message]:
    found: dict[str, Message] = {}
    for match in _GZIP.finditer(binary):
        unpacking = zlib.decompressobj(31)
        try:
            content = unpacking.decompress(binary[match.start() : match.start() + _LARGEST])
            if unpacking.eof and b"k8s.io/" in content[:100]:
                found.update(_file(content))
        except (zlib.error, ValueError, IndexError):
            continue  # something else that looks like it
    if not found:
        sys.exit("no descriptors of the Kubernetes API found in it: is this kubectl?")
    return found


def _file(content: bytes) -> Iterator[tuple[str, Message]]:
    members = list(_members(content))
    package = next(value.decode() for number, value in members if number == 2 and isinstance(value, bytes))
    for number, value in members:
        if number == 4 and isinstance(value, bytes):
            yield from _message(value, package)


def _message(content: bytes, prefix: str) -> Iterator[tuple[str, Message]]:
    message, name, nested = Message(), "", []
    for number, value in _members(content):
        match number, value:
            case 1, bytes():
                name = f"{prefix}.{value.decode()}"
            case 2, bytes():
                message.fields.append(_field(value))
            case 3, bytes():
                nested.append(value)
            case 7, bytes():
                message.is_entry = dict(_members(value)).get(7) == 1
    yield _published_name(name), message
    for each in nested:
        yield from _message(each, name)


def _field(content: bytes) -> Field:
    result = Field()
    for number, value in _members(content):
        match number, value:
            case 1, bytes():
                result.name = value.decode()
            case 3, int():
                result.number = value
            case 4, int():
                result.repeated = value == _REPEATED
            case 5, int():
                result.type = value
            case 6, bytes():
                result.message = _published_name(value.decode().lstrip("."))
            case 8, bytes():
                result.pointer = dict(_members(value)).get(_NULLABLE) != 0
    return result


def _published_name(name: str) -> str:
    """Turn `k8s.io.api.core.v1.Pod` into the name of its OpenAPI definition."""
    return name.replace("k8s.io.", "io.k8s.", 1)


def _members(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(content):
        tag, position = _varint(content, position)
        value, position = _varint(content, position)
        match tag & 7:
            case 0:
                yield tag >> 3, value
            case 2:
                yield tag >> 3, content[position : position + value]
                position += value
            case kind:
                raise ValueError(f"wire type {kind} has no place in a descriptor")


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position


if __name__ == "__main__":
    sys.exit(main())
