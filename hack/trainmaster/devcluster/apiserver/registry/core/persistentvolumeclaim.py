"""PersistentVolumeClaims."""

from __future__ import annotations

from trainmaster.devcluster.apiserver.errors import FieldError, unsupported
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.runtime.jsontree import JsonObject


class PersistentVolumeClaimStrategy(Strategy):
    """PersistentVolumeClaims start as pending; the kubelet binds them to a directory."""

    return_deleted_object = True

    def default(self, obj: JsonObject) -> None:
        """Fill in the volume mode."""
        obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start as pending."""
        obj["status"] = {"phase": "Pending"}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check access modes and size."""
        spec = obj["spec"]
        problems = []
        if not spec.get("accessModes"):
            problems.append(FieldError("spec.accessModes", "Required", detail="at least 1 access mode is required"))
        known = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
        problems += [
            unsupported("spec.accessModes", mode, known) for mode in spec.get("accessModes") or () if mode not in known
        ]
        if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
            problems.append(FieldError("spec.resources[storage]", "Required"))
        return problems

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Allow a larger request and nothing else, once the claim is bound to a volume."""
        mutable = ("resources", "volumeName", "volumeAttributesClassName")
        new = {field: value for field, value in obj["spec"].items() if field not in mutable}
        before = {field: value for field, value in old["spec"].items() if field not in mutable}
        moved = old["spec"].get("volumeName") and obj["spec"].get("volumeName") != old["spec"]["volumeName"]
        if new == before and not moved:
            return []
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        return [FieldError("spec", "Forbidden", detail=detail)]


def kind() -> Kind:
    """Return the kind as the API serves it."""
    return builtin_kind(
        "",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        strategy=PersistentVolumeClaimStrategy(),
        short_names=("pvc",),
        subresources=("status",),
        columns=printers.PERSISTENT_VOLUME_CLAIMS,
    )
