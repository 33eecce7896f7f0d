"""ReplicaSets: defaults and rules of their spec, and their scale."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.apps.deployment import SCALE
from trainmaster.devcluster.apiserver.registry.apps.workload_validation import (
    validate_workload,
    validate_workload_update,
)
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.core.podspec import default_pod_spec
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject

_LEFT_OUT = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
"""Fields of the status that are not sent while they are zero."""


class ReplicaSetStrategy(Strategy):
    """ReplicaSets."""

    has_generation = True
    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in the number of replicas and the pod template."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        template = spec.setdefault("template", {})
        template.setdefault("metadata", {})
        default_pod_spec(template.setdefault("spec", {}))

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start with nothing counted."""
        obj["status"] = {"replicas": 0}

    def prepare_for_status_update(self, obj: JsonObject, old: JsonObject) -> None:
        """Restore what a status update must not change, and leave out what is zero."""
        super().prepare_for_status_update(obj, old)
        status = obj.setdefault("status", {})
        status.setdefault("replicas", 0)
        for field in _LEFT_OUT:
            if not status.get(field):
                status.pop(field, None)

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check the spec."""
        return list(validate_workload(obj["spec"]))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Refuse another selector."""
        return list(validate_workload_update(obj["spec"], old["spec"]))


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "apps",
        "ReplicaSet",
        "replicasets",
        strategy=ReplicaSetStrategy(),
        short_names=("rs",),
        categories=("all",),
        subresources=("status", "scale"),
        columns=printers.REPLICA_SETS,
        scale=SCALE,
        field_labels={"status.replicas": lambda obj: str((obj.get("status") or {}).get("replicas", 0))},
    )
