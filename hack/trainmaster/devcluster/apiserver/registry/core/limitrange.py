"""LimitRanges. What they do to a pod is a matter of admission."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.limitrange_validation import validate_limit_range
from trainmaster.devcluster.apiserver.registry.kind import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject


class LimitRangeStrategy(Strategy):
    """LimitRanges: an upper limit is also the default limit, and that the default request."""

    allow_create_on_update = True

    def default(self, obj: JsonObject) -> None:
        """Derive the defaults that are left out from those that are given."""
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            for field, source in (("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")):
                if item.get(source):
                    item[field] = {**item[source], **(item.get(field) or {})}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check each limit by itself."""
        return validate_limit_range(obj)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "LimitRange",
        "limitranges",
        strategy=LimitRangeStrategy(),
        short_names=("limits",),
    )
