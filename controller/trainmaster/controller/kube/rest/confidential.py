"""The values of a request that no answer to it may carry into a text: what is in a Secret, and tokens to be reviewed.

Guarantees:
- M-11: a server, or an admission webhook behind it, that refuses such a request may quote what it refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trainmaster.runtime.jsontext import JsonError, load_json

_SHORTEST: Final = 8
"""Characters; what is shorter is no secret, and occurs in any text."""


def confidential(path: str, body: bytes | None) -> list[bytes]:
    """Return the confidential values of a request, the longest first: one may be a part of another."""
    parts = path.split("/")
    if body is None or not {"secrets", "tokenreviews"} & set(parts):
        return []
    try:
        obj = load_json(body)
    except JsonError:
        return []
    found = {text for text in _texts(obj) if len(text) >= _SHORTEST} if isinstance(obj, dict) else set()
    return [text.encode() for text in sorted(found, key=len, reverse=True)]


def _texts(obj: dict[str, Any]) -> Iterator[str]:
    for section in (obj.get("data"), obj.get("stringData"), obj.get("spec")):
        if isinstance(section, dict):
            yield from (value for value in section.values() if isinstance(value, str))
