"""Request bodies: read within bounds, decoded by content type.

Guarantees:
- nothing larger than the limit is ever held, and a client that stops sending does not hold the handler for ever;
- a body that cannot be decoded is a 4xx Status that names the place of the error, never a 500;
- fields given twice are reported as the field validation of the request asks for; the last one counts.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.http.protobuf import PROTOBUF, decode_protobuf
from trainmaster.runtime.jsontext import JsonError, load_json
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import YamlError, load_yaml

MAX_BODY_BYTES = 3 * 1024 * 1024
"""The same limit as the API server's default."""

_READ_TIMEOUT = 60.0

JSON = "application/json"
YAML = "application/yaml"

_COLON = b'":'
"""What follows a name in compact JSON."""


async def read_body(request: web.Request) -> bytes:
    """Read the whole body; the size limit is the application's `client_max_size`."""
    try:
        async with asyncio.timeout(_READ_TIMEOUT):
            return await request.read()
    except TimeoutError as error:
        raise errors.timeout(f"the body did not arrive within {_READ_TIMEOUT:.0f} s; send it again") from error


def content_type_of(request: web.Request) -> str:
    """The media type of the body without parameters; a request without the header counts as JSON."""
    return request.content_type if "Content-Type" in request.headers else JSON


@dataclass(slots=True)
class Duplicates:
    """The fields that a body gives more than once, in the words of the server's decoders."""

    texts: list[str]
    in_yaml: bool = False

    def __bool__(self) -> bool:
        return bool(self.texts)

    @property
    def error(self) -> str:
        """What a strict decoder says of them."""
        if self.in_yaml:
            return "yaml: unmarshal errors:\n" + "\n".join(f"  {text}" for text in self.texts)
        return ", ".join(self.texts)


async def read_object(request: web.Request, *, duplicates: Duplicates | None = None) -> JsonObject:
    """Read a body that has to be an object; fields that it gives twice go to `duplicates`."""
    content_type = content_type_of(request)
    if content_type not in {JSON, YAML, PROTOBUF}:
        raise errors.unsupported_media_type([JSON, YAML, PROTOBUF])
    body = await read_body(request)
    if content_type == PROTOBUF:
        return decode_protobuf(body)
    tree = (decode_yaml if content_type == YAML else decode_json)(body, duplicates=duplicates)
    if not isinstance(tree, dict):
        raise errors.bad_request(f"the body must be an object, not {_json_type(tree)}")
    return tree


def decode_json(body: bytes, *, duplicates: Duplicates | None = None) -> Any:
    """Decode JSON, with the position in the error; repeated fields go to `duplicates`."""
    try:
        tree = load_json(body)
    except JsonError as error:
        raise errors.bad_request(f"the body is not valid JSON: {error}") from error
    if duplicates is not None and _loses_fields(body, tree):
        duplicates.texts.extend(f"duplicate field {errors.quote(path)}" for path in _repeated_fields(body))
    return tree


def decode_yaml(body: bytes, *, duplicates: Duplicates | None = None) -> Any:
    """Decode YAML, also the JSON that clients often send under its media type; repeated keys go to `duplicates`."""
    if body.lstrip()[:1] in {b"{", b"["}:
        try:
            tree = load_json(body)
            if duplicates is None or not _loses_fields(body, tree):
                return tree
        except JsonError:
            pass  # flow-style YAML may look like JSON without being it
    repeated: list[str] = []
    try:
        return load_yaml(body, repeated=repeated)
    except YamlError as error:
        raise errors.bad_request(f"the body is not valid YAML: {error}") from error
    finally:
        if duplicates is not None and repeated:
            duplicates.texts.extend(repeated)
            duplicates.in_yaml = True


def _loses_fields(body: bytes, tree: Any) -> bool:
    """Return whether JSON holds fields that its tree lacks, because others of the same name replaced them."""
    # Printing the tree again costs far less than reading it with a hook, and mostly shows that nothing was lost.
    return orjson.dumps(tree).count(_COLON) != body.count(_COLON) and bool(_repeated_fields(body))


class _Repeating(dict[str, Any]):
    """An object of whose fields some were given more than once."""

    repeated: list[str]


def _repeated_fields(body: bytes) -> list[str]:
    """Paths of fields given twice. orjson keeps the last one silently, so the text is read again with a hook."""
    found = False

    def build(pairs: list[tuple[str, Any]]) -> JsonObject:
        nonlocal found
        fields = dict(pairs)
        if len(fields) == len(pairs):
            return fields
        found = True
        repeating = _Repeating(fields)
        repeating.repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        return repeating

    tree = json.loads(body, object_pairs_hook=build)
    return _paths_of_repeated(tree, "") if found else []


def _paths_of_repeated(node: Any, path: str) -> list[str]:
    paths: list[str] = []
    if isinstance(node, _Repeating):
        paths += [f"{path}.{key}".removeprefix(".") for key in node.repeated]
    if isinstance(node, dict):
        for key, value in node.items():
            paths += _paths_of_repeated(value, f"{path}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            paths += _paths_of_repeated(value, f"{path}[{index}]")
    return paths


def _json_type(tree: Any) -> str:
    match tree:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case _:
            return "an array"
