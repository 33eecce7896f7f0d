"""ResourceClaimTemplates: claims yet to be made, under the rules of claims."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.resource.resourceclaim import (
    check_claim_spec,
    default_claim_spec,
    validate_claim_spec,
)
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject


class ResourceClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplates never change."""

    def default(self, obj: JsonObject) -> None:
        """Fill in how many devices are meant."""
        default_claim_spec(obj.setdefault("spec", {}).setdefault("spec", {}))

    def check_create(self, obj: JsonObject) -> None:
        """Refuse claims that would never be allocated."""
        check_claim_spec((obj.get("spec") or {}).get("spec") or {})

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the requests."""
        return list(validate_claim_spec(obj["spec"]["spec"], "spec.spec.devices"))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse every change of the spec."""
        return [] if obj["spec"] == old["spec"] else [immutable("spec", obj["spec"])]


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "resource.k8s.io",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        strategy=ResourceClaimTemplateStrategy(),
    )
