"""Strategies of ConfigMaps and Secrets."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.strategies.base import Strategy, immutable
from trainmaster.runtime.jsontree import JsonObject

_DATA_LIMIT = 1024 * 1024


class ConfigMapStrategy(Strategy):
    """ConfigMaps: keys, size, and the promise of `immutable`."""

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check keys and size."""
        return list(self._problems(obj))

    def _problems(self, obj: JsonObject) -> Iterator[FieldError]:
        total = 0
        for field in ("data", "binaryData"):
            for key, value in (obj.get(field) or {}).items():
                yield from _key_problems(f"{field}[{key}]", key)
                total += len(value.encode())
        both = (obj.get("data") or {}).keys() & (obj.get("binaryData") or {}).keys()
        for key in sorted(both):
            yield FieldError(f"data[{key}]", "Invalid", key, "duplicate of key present in binaryData")
        if total > _DATA_LIMIT:
            yield FieldError("[]", "TooLong", detail=f"may not be more than {_DATA_LIMIT} bytes")

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of an immutable object."""
        if not old.get("immutable"):
            return []
        detail = "field is immutable when `immutable` is set"
        problems = [
            FieldError(field, "Forbidden", detail=detail)
            for field in ("data", "binaryData", "stringData")
            if obj.get(field) != old.get(field)
        ]
        if not obj.get("immutable"):
            problems.insert(0, FieldError("immutable", "Forbidden", detail=detail))
        return problems


class SecretStrategy(ConfigMapStrategy):
    """Secrets: `stringData` is an input form of `data`."""

    def default(self, obj: JsonObject) -> None:
        """Encode the plain strings, and name the type."""
        obj.setdefault("type", "Opaque")
        plain = obj.pop("stringData", None)
        if plain:
            data = obj.setdefault("data", {})
            data.update({key: base64.b64encode(value.encode()).decode() for key, value in plain.items()})

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check keys, encoding and size."""
        problems = super().validate(obj)
        for key, value in (obj.get("data") or {}).items():
            try:
                base64.b64decode(value, validate=True)
            except binascii.Error:
                problems.append(FieldError(f"data[{key}]", "Invalid", "<secret contents redacted>", "must be base64"))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of the type, and of an immutable object."""
        problems = super().validate_update(obj, old)
        return problems if obj["type"] == old.get("type") else [*problems, immutable("type", obj["type"])]


def _key_problems(path: str, key: str) -> Iterator[FieldError]:
    if len(key) > 253:
        yield FieldError(path, "Invalid", key, "must be no more than 253 characters")
    elif not key or key in (".", "..") or not all(each.isascii() and (each.isalnum() or each in "-._") for each in key):
        detail = (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
        yield FieldError(path, "Invalid", key, detail)
