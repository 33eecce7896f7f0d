"""ResourceQuotas, and their rules. What they allow is a matter of admission; what is used, of a controller."""

from __future__ import annotations

from typing import Final

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, validate_nonnegative_quantity
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_SCOPES: Final = ("scopes", "scopeSelector")


class ResourceQuotaStrategy(Strategy):
    """ResourceQuotas: amounts that are not negative, and no scopes."""

    allow_create_on_update = True

    def default(self, obj: JsonObject) -> None:
        """Start with an empty spec."""
        obj.setdefault("spec", {})

    def check_create(self, obj: JsonObject) -> None:
        """Refuse what would count only some of the pods."""
        _refuse_scopes(obj)

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start with nothing counted."""
        obj["status"] = {}

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep the status, and refuse scopes."""
        _refuse_scopes(obj)
        obj["status"] = old.get("status", {})

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check that no amount is negative."""
        hard = (obj.get("spec") or {}).get("hard") or {}
        return [
            problem
            for name, value in hard.items()
            for problem in validate_nonnegative_quantity(value, f"spec.hard[{name}]")
        ]


def _refuse_scopes(obj: JsonObject) -> None:
    if any((obj.get("spec") or {}).get(field) for field in _SCOPES):
        raise errors.not_implemented("ResourceQuotas with scopes")


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "ResourceQuota",
        "resourcequotas",
        strategy=ResourceQuotaStrategy(),
        short_names=("quota",),
        subresources=("status",),
        columns=printers.RESOURCE_QUOTAS,
    )
