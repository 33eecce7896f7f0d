"""`Schema`: a structural schema with the operations that the API server performs by it.

The schemas of built-in kinds come from OpenAPI definitions in the generated `definitions.json`, read at first use.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import orjson

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.schema import canonical, defaulting, pruning, validation
from trainmaster.devcluster.apiserver.schema.structural import Node
from trainmaster.runtime.jsontree import JsonObject


class Schema(Node):
    """A structural schema. The root describes a whole object, every other node a part of it."""

    __slots__ = ()

    def prune(self, obj: JsonObject) -> list[str]:
        """Remove unknown fields in place, metadata apart; returns their sorted paths (`spec.bogus`)."""
        return pruning.prune(self, obj)

    def default(self, obj: JsonObject) -> None:
        """Drop nulls where none is allowed and fill in defaults, in place."""
        defaulting.default(self, obj)

    def canonicalize(self, obj: JsonObject) -> None:
        """Rewrite quantities and times as the server prints them, in place; raises `ValueError` for what is neither."""
        canonical.canonicalize(self, obj)

    def validate(self, obj: Any, path: str = "") -> list[FieldError]:
        """Check a value and everything in it; `path` is where it stands (`spec.x`). Returns what is wrong with it."""
        return validation.validate(self, obj, path)


@functools.cache
def builtin_schema(definition_name: str) -> Schema:
    """Return the schema of a built-in type (`io.k8s.api.core.v1.Pod`); raises `ValueError` where there is none."""
    return Schema.compile({"$ref": definition_name}, _definitions())


@functools.cache
def _definitions() -> dict[str, JsonObject]:
    file = resources.files(__package__).joinpath("definitions.json")
    loaded: dict[str, JsonObject] = orjson.loads(file.read_bytes())
    return loaded
