"""ConfigMaps, and the rules of keyed data that Secrets share with them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.fields import config_key_problems
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

DATA_LIMIT = 1024 * 1024
"""The most bytes that the values of one object may have."""


def too_much_data(path: str) -> FieldError:
    """Return the error of values that have more than `DATA_LIMIT` bytes."""
    return FieldError(path, "TooLong", detail=f"may not be more than {DATA_LIMIT} bytes")


def validate_keys(data: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Check that the keys can be names of files."""
    for key in data:
        yield from (FieldError(f"{path}[{key}]", "Invalid", key, problem) for problem in config_key_problems(key))


def decoded_size(data: Mapping[str, str]) -> int:
    """Return the number of bytes of base64 values."""
    return sum(len(base64.b64decode(value)) for value in data.values())


def validate_immutable(obj: JsonObject, old: JsonObject, fields: tuple[str, ...]) -> Iterator[FieldError]:
    """Check that an object that was declared immutable keeps these fields, and stays immutable."""
    if not old.get("immutable"):
        return
    detail = "field is immutable when `immutable` is set"
    if not obj.get("immutable"):
        yield FieldError("immutable", "Forbidden", detail=detail)
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            yield FieldError(field, "Forbidden", detail=detail)


class ConfigMapStrategy(Strategy):
    """ConfigMaps: keys, size, and the promise of `immutable`."""

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check keys and size."""
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        problems = [*validate_keys(data, "data"), *validate_keys(binary, "binaryData")]
        detail = "duplicate of key present in binaryData"
        problems += [FieldError(f"data[{key}]", "Invalid", key, detail) for key in sorted(data.keys() & binary.keys())]
        if sum(len(value.encode()) for value in data.values()) + decoded_size(binary) > DATA_LIMIT:
            problems.append(too_much_data("[]"))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse changes of an immutable object."""
        return list(validate_immutable(obj, old, ("data", "binaryData")))


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
