"""ResourceClaims of dynamic resource allocation (DRA, `resource.k8s.io/v1`).

Served: requests for an exact number of devices of a class, from classes that select by driver or not at all. A claim
that asks for anything else would wait for ever, so it is answered with 501: prioritized alternatives, all devices,
administrative access, selectors of a request, constraints, consumable capacity and tolerations.

The templates of claims share the spec of a claim: its defaults, what of it is served, and its rules.
"""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.resource.resourceclaim_validation import (
    check_claim_spec,
    validate_claim_spec,
    validate_consumers,
)
from trainmaster.devcluster.apiserver.registry.strategy import Strategy, restore
from trainmaster.runtime.jsontree import JsonObject


def default_claim_spec(spec: JsonObject) -> None:
    """Fill in how many devices the requests mean."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        for devices in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if devices is not None:
                devices["allocationMode"] = devices.get("allocationMode") or "ExactCount"
                if devices["allocationMode"] == "ExactCount":
                    devices["count"] = devices.get("count") or 1


class ResourceClaimStrategy(Strategy):
    """ResourceClaims: what they ask for is fixed, who uses it is written to their status."""

    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in how many devices are meant."""
        default_claim_spec(obj.setdefault("spec", {}))

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start without a status."""
        obj["status"] = {}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the requests; 501 for a sound claim that would never be allocated."""
        problems = list(validate_claim_spec(obj["spec"], "spec.devices"))
        if not problems:
            check_claim_spec(obj["spec"])
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another request."""
        return [] if obj["spec"] == old["spec"] else [immutable("spec", obj["spec"])]

    def validate_status_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:  # noqa: ARG002
        """Check the consumers."""
        return list(validate_consumers(obj.get("status") or {}))

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
