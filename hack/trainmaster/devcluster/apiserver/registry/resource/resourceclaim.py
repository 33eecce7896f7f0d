"""ResourceClaims of dynamic resource allocation (DRA, `resource.k8s.io/v1`).

Served: requests for an exact number of devices of a class, from classes that select by driver or not at all. A claim
that asks for anything else would wait for ever, so it is answered with 501: prioritized alternatives, all devices,
administrative access, selectors of a request, constraints, consumable capacity and tolerations.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.field_errors import immutable, too_many
from trainmaster.devcluster.apiserver.registry.kind import Kind
from trainmaster.devcluster.apiserver.registry.resource.resourceclaim_validation import (
    check_claim_spec,
    default_claim_spec,
    validate_claim_spec,
)
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.runtime.jsontree import JsonObject

_MOST_CONSUMERS = 256


class ResourceClaimStrategy(Strategy):
    """ResourceClaims: what they ask for is fixed, who uses it is written to their status."""

    def default(self, obj: JsonObject) -> None:
        """Fill in how many devices are meant."""
        default_claim_spec(obj.setdefault("spec", {}))

    def check_create(self, obj: JsonObject) -> None:
        """Refuse what would never be allocated."""
        check_claim_spec(obj.get("spec") or {})

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start without a status."""
        obj["status"] = {}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check requests and consumers."""
        problems = list(validate_claim_spec(obj["spec"], "spec.devices"))
        if len((obj.get("status") or {}).get("reservedFor") or ()) > _MOST_CONSUMERS:
            problems.append(too_many("status.reservedFor", errors.OMITTED, _MOST_CONSUMERS))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another request."""
        return [] if obj["spec"] == old["spec"] else [immutable("spec", obj["spec"])]

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Keep everything but the status."""
        super().prepare_for_status_update(obj, old)
        for field in ("annotations", "finalizers", "labels", "ownerReferences"):
            restore(obj["metadata"], old["metadata"], field)


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "resource.k8s.io",
        "ResourceClaim",
        "resourceclaims",
        strategy=ResourceClaimStrategy(),
        subresources=("status",),
        columns=printers.RESOURCE_CLAIMS,
    )
