"""Decoding the part of an object that is of interest: without managedFields, which are half of it, or its status alone.

Guarantees:
- What is returned is what decoding all of it and dropping the rest would have given, or putting the text of
  managedFields in their place: what cannot be told apart for certain is decoded.
- Of what is cut out nobody knows whether it is JSON (see `partial`: of managedFields nothing is needed).
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import orjson

from trainmaster.runtime.jsontree import JsonObject


class ManagedFields(Enum):
    """What a reader of objects needs of the record of who set which field."""

    DECODED = "decoded"
    """A list, as it is."""

    TEXT = "text"
    """The JSON text of the list, which is quicker, or the list where that is not to be had."""

    DROPPED = "dropped"
    """Nothing."""


_KEY: Final = b',"managedFields":'
"""Quotes within strings are escaped, so that this is a key wherever it stands in a JSON text."""

_STATUS: Final = b',"status":{'
_RESOURCE_VERSION: Final = b'"resourceVersion":"'


def loads_without_managed_fields(text: bytes, *path: str, keep_text: bool = False) -> Any:
    """Decode an object, or what holds one at `path`, without the object's managedFields.

    With `keep_text` they stay: as their text, or decoded, if they cannot be cut out.

    Raises:
        orjson.JSONDecodeError: It is no JSON, or more than this decoder takes.
    """
    start = text.find(_KEY + b"[")
    if start >= 0:
        start += len(_KEY)
        # Another `]` would not do: one within a string leaves an odd number of quotes behind, one of a list within
        # leaves too many brackets.
        end = text.find(b"]", start)
        try:
            decoded = orjson.loads(b"".join((text[:start], b"0", text[end + 1 :])))
        except orjson.JSONDecodeError:
            decoded = None
        metadata = _metadata(decoded, path)
        if metadata is not None and metadata.get("managedFields") == 0:
            if keep_text:
                metadata["managedFields"] = text[start : end + 1].decode(errors="replace")
            else:
                del metadata["managedFields"]
            return decoded
    decoded = orjson.loads(text)
    metadata = _metadata(decoded, path)
    if metadata is not None and not keep_text:
        metadata.pop("managedFields", None)
    return decoded


def split_status(text: bytes) -> tuple[bytes, JsonObject] | None:
    """Split the JSON of an object into what stands before its status, and the status; None if it has none at its end.

    Raises:
        orjson.JSONDecodeError: The last thing of that name is no status that ends the object.
    """
    start = text.rfind(_STATUS)
    # Behind one that is deeper within the object there is more than the bracket at the end.
    return None if start < 0 else (text[:start], orjson.loads(text[start + len(_STATUS) - 1 : -1]))


def loads_status(text: bytes) -> tuple[JsonObject, str] | None:
    """Decode the status that an object ends with; returns it with the resource version of the object.

    None: it has none at its end, or another key has one of these names.
    """
    try:
        found = split_status(text.rstrip())
    except orjson.JSONDecodeError:
        return None
    if found is None or found[0].count(_RESOURCE_VERSION) != 1:
        return None
    head, status = found
    version = head.find(_RESOURCE_VERSION) + len(_RESOURCE_VERSION)
    return status, head[version : head.find(b'"', version)].decode(errors="replace")


def _metadata(decoded: Any, path: tuple[str, ...]) -> dict[str, Any] | None:
    for name in path:
        decoded = decoded.get(name) if type(decoded) is dict else None
    metadata = decoded.get("metadata") if type(decoded) is dict else None
    return metadata if type(metadata) is dict else None
