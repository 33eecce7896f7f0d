"""ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_DATA_LIMIT = 1024 * 1024


class ConfigMapStrategy(Strategy):
    """ConfigMaps: keys, size, and the promise of `immutable`."""

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check keys and size."""
        return list(self._validate(obj))

    def _validate(self, obj: JsonObject) -> Iterator[FieldError]:
        total = 0
        for field in ("data", "binaryData"):
            for key, value in (obj.get(field) or {}).items():
                yield from _validate_key(f"{field}[{key}]", key)
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


def _validate_key(path: str, key: str) -> Iterator[FieldError]:
    if len(key) > 253:
        yield FieldError(path, "Invalid", key, "must be no more than 253 characters")
    elif not key or key in (".", "..") or not all(each.isascii() and (each.isalnum() or each in "-._") for each in key):
        detail = (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
        yield FieldError(path, "Invalid", key, detail)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "ConfigMap",
        "configmaps",
        strategy=ConfigMapStrategy(),
        short_names=("cm",),
        columns=printers.CONFIGMAPS,
    )
