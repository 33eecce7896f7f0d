"""The strategy of custom resources."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.registry.strategies.base import Strategy
from trainmaster.runtime.jsontree import JsonObject


class CustomStrategy(Strategy):
    """Custom resources know no more than their schema does; everything but metadata and status is desired state."""

    has_generation = True
    unconditional_update = False

    def __init__(self, *, has_status: bool) -> None:
        self._apart = frozenset({"metadata", "status"} if has_status else {"metadata"})

    def is_new_generation(self, obj: JsonObject, old: JsonObject) -> bool:
        """Return whether anything changed apart from metadata and, where it is written separately, status."""
        return any(obj.get(field) != old.get(field) for field in (obj.keys() | old.keys()) - self._apart)
