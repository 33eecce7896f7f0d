"""Decoding without managedFields: half of what an object has on the wire, and most of the time that decoding it takes.

Guarantees:
- What is returned is what decoding all of it and dropping `metadata.managedFields` would have given, or putting its
  text in its place: what cannot be cut out for certain is decoded.
- Of what is cut out nobody knows whether it is JSON (see `partial`: of managedFields nothing is needed).
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import orjson


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


def _metadata(decoded: Any, path: tuple[str, ...]) -> dict[str, Any] | None:
    for name in path:
        decoded = decoded.get(name) if type(decoded) is dict else None
    metadata = decoded.get("metadata") if type(decoded) is dict else None
    return metadata if type(metadata) is dict else None
