"""ResourceClaimTemplates: claims yet to be made, under the rules of claims."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError, immutable
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.labels import labels, object_annotations
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.resource.resourceclaim import default_claim_spec
from trainmaster.devcluster.apiserver.registry.resource.resourceclaim_validation import (
    check_claim_spec,
    validate_claim_spec,
)
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject


class ResourceClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplates never change."""

    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in how many devices are meant."""
        default_claim_spec(obj.setdefault("spec", {}).setdefault("spec", {}))

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the metadata and the requests; 501 for sound claims that would never be allocated."""
        spec = obj["spec"]
        problems = [
            *_validate_metadata(spec.get("metadata") or {}),
            *validate_claim_spec(spec["spec"], "spec.spec.devices"),
        ]
        if not problems:
            check_claim_spec(spec["spec"])
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse every change of the spec."""
        return [] if obj["spec"] == old["spec"] else [immutable("spec", obj["spec"])]


def _validate_metadata(metadata: JsonObject) -> Iterator[FieldError]:
    """Check the metadata of the claims to be made, which the template says no more about than labels and the like."""
    path = "spec.metadata"
    yield from labels(f"{path}.labels", metadata.get("labels") or {})
    yield from object_annotations(f"{path}.annotations", metadata.get("annotations") or {})
    for field, value in metadata.items():
        if value and field not in ("labels", "annotations"):
            yield FieldError(f"{path}.{field}", "Forbidden", detail="cannot be set")


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "resource.k8s.io",
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        strategy=ResourceClaimTemplateStrategy(),
    )
