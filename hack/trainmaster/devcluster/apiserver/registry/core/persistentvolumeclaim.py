"""PersistentVolumeClaims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.fields import invalid, one_of
from trainmaster.devcluster.apiserver.registry.labels import label_selector
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_subdomain
from trainmaster.runtime.quantity import Quantity

_IMMUTABLE_TEXT = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_RESIZE_TEXT = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)

ZERO: Final = Quantity.parse(0)
_ACCESS_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
_ALONE = "ReadWriteOncePod"
_VOLUME_MODES = ["Block", "Filesystem"]


class PersistentVolumeClaimStrategy(Strategy):
    """PersistentVolumeClaims start as pending; the kubelet binds them to a directory, whatever their source is."""

    return_deleted_object = True
    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in the volume mode."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start as pending."""
        obj["status"] = {"phase": "Pending"}

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check access modes, size and class."""
        return list(validate_claim_spec(obj["spec"], "spec"))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Allow a larger request and another attributes class, once the claim is bound, and nothing else."""
        problems = list(_validate_update(obj, old))
        new, before = requested_size(obj["spec"]), requested_size(old["spec"])
        if not problems and _is_bound(old) and new is not None and before is not None and before < new:
            # There is no storage class here that could support it.
            raise errors.forbidden(_RESIZE_TEXT, resource=PERSISTENT_VOLUME_CLAIMS, name=obj["metadata"]["name"])
        return problems


def _is_bound(claim: JsonObject) -> bool:
    return bool((claim.get("status") or {}).get("phase") == "Bound")


def _validate_update(obj: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    new, before = obj["spec"], old["spec"]
    if _comparable(obj, new, before) != _comparable(obj, before, before):
        yield FieldError("spec", "Forbidden", detail=_IMMUTABLE_TEXT)
    size, size_before = requested_size(new), requested_size(before)
    capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage", 0)
    if size is not None and size_before is not None and size < size_before and not Quantity.parse(capacity) < size:
        path, detail = "spec.resources.requests.storage", "field can not be less than status.capacity"
        yield FieldError(path, "Forbidden", detail=detail)
    if new["volumeMode"] != before["volumeMode"]:
        yield errors.immutable("volumeMode", new["volumeMode"])


def _comparable(claim: JsonObject, spec: JsonObject, before: JsonObject) -> JsonObject:
    """Return a spec without what may change: names that were not given before, and sizes once the claim is bound."""
    free = {field for field in ("volumeName", "storageClassName") if not before.get(field)}
    if before.get("storageClassName") is not None:
        free.discard("storageClassName")
    kept = {field: value for field, value in spec.items() if field not in free}
    if _is_bound(claim):
        kept.pop("volumeAttributesClassName", None)
        resources = dict(kept.get("resources") or {})
        resources["requests"] = {**(resources.get("requests") or {}), "storage": None}
        kept["resources"] = resources
    return kept


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


def requested_size(spec: JsonObject) -> Quantity | None:
    """Return how much storage the spec of a claim asks for."""
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return None if size is None else Quantity.parse(size)


def validate_claim_spec(spec: JsonObject, path: str) -> Iterator[FieldError]:
    """Check the spec of a claim that has its defaults; `path` is where it stands."""
    modes = spec.get("accessModes") or []
    if not modes:
        yield FieldError(f"{path}.accessModes", "Required", detail="at least 1 access mode is required")
    if "selector" in spec:
        yield from label_selector(f"{path}.selector", spec["selector"])
    for mode in modes:
        yield from one_of(f"{path}.accessModes", mode, _ACCESS_MODES)
    if _ALONE in modes and set(modes) != {_ALONE}:
        detail = f"may not use {_ALONE} with other access modes"
        yield FieldError(f"{path}.accessModes", "Forbidden", detail=detail)
    size = requested_size(spec)
    if size is None:
        yield FieldError(f"{path}.resources[storage]", "Required")
    elif size <= ZERO:
        shown = spec["resources"]["requests"]["storage"]
        yield FieldError(f"{path}.resources[storage]", "Invalid", shown, "must be greater than zero")
    if name := spec.get("storageClassName"):
        yield from invalid(f"{path}.storageClassName", name, dns_subdomain(name))
    if "volumeMode" in spec:
        yield from one_of(f"{path}.volumeMode", spec["volumeMode"], _VOLUME_MODES)
