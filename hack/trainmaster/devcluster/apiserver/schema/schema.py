"""`Schema`: a schema node with the operations that the API server performs by it."""

from __future__ import annotations

from typing import Any

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.schema import canonical, defaulting, pruning, validation
from trainmaster.devcluster.apiserver.schema.node import Node
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
