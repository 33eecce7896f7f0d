"""PersistentVolumeClaims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from trainmaster.devcluster.apiserver import errors
from trainmaster.devcluster.apiserver.errors import FieldError, unsupported
from trainmaster.devcluster.apiserver.registry import printers
from trainmaster.devcluster.apiserver.registry.builtin_kind import builtin_kind
from trainmaster.devcluster.apiserver.registry.labels import label_selector
from trainmaster.devcluster.apiserver.registry.registry import Kind
from trainmaster.devcluster.apiserver.registry.strategy import Strategy
from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_subdomain
from trainmaster.runtime.quantity import Quantity

_KIND_AND_GROUP = (("PersistentVolumeClaim", ""), ("VolumeSnapshot", "snapshot.storage.k8s.io"))
"""What a `dataSource` may be; of anything else only a `dataSourceRef` tells."""
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
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
    """PersistentVolumeClaims start as pending; the kubelet binds them to a directory."""

    return_deleted_object = True
    required_by_schema = False

    def default(self, obj: JsonObject) -> None:
        """Fill in the volume mode."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")

    def prepare_for_create(self, obj: JsonObject) -> None:
        """Start as pending, with both names of the source."""
        obj["status"] = {"phase": "Pending"}
        _normalize_source(obj["spec"])

    def prepare_for_update(self, obj: JsonObject, old: JsonObject) -> None:  # noqa: ARG002 - of every strategy
        """Name the source twice, as in the old object."""
        _normalize_source(obj["spec"])

    def validate(self, obj: JsonObject) -> list[FieldError]:
        """Check access modes, size, class and source."""
        return list(validate_claim_spec(obj["spec"], "spec"))

    def validate_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:
        """Allow a larger request and another attributes class, once the claim is bound, and nothing else."""
        problems = list(_validate_update(obj, old))
        new, before = requested_size(obj["spec"]), requested_size(old["spec"])
        if not problems and _is_bound(old) and new is not None and before is not None and before < new:
            # There is no storage class here that could support it.
            raise errors.forbidden(_RESIZE_TEXT, resource=PERSISTENT_VOLUME_CLAIMS, name=obj["metadata"]["name"])
        return problems

    def validate_status_update(self, obj: JsonObject, old: JsonObject) -> list[FieldError]:  # noqa: ARG002
        """Check that capacities are sizes."""
        capacity: Mapping[str, str] = (obj.get("status") or {}).get("capacity") or {}
        return [
            FieldError(f"status.capacity[{name}]", "Invalid", _whole(value), "must be a valid resource quantity")
            for name, value in capacity.items()
            if Quantity.parse(value) < ZERO
        ]

    def warnings_on_create(self, obj: JsonObject) -> list[str]:
        """Tell of the annotation that the class had before, and of sizes that are no whole bytes."""
        warnings = []
        if _OLD_CLASS in (obj["metadata"].get("annotations") or {}):
            text = 'deprecated since v1.8; use "storageClassName" attribute instead'
            warnings.append(f"metadata.annotations[{_OLD_CLASS}]: {text}")
        resources = obj["spec"].get("resources") or {}
        for field in ("requests", "limits"):
            size = (resources.get(field) or {}).get("storage")
            if size is not None and size.endswith("m"):
                text = f'fractional byte value "{size}" is invalid, must be an integer'
                warnings.append(f"spec.resources.{field}[storage]: {text}")
        return warnings

    def warnings_on_update(self, obj: JsonObject, old: JsonObject) -> list[str]:  # noqa: ARG002 - of every strategy
        """Tell the same as of a new claim."""
        return self.warnings_on_create(obj)


def _whole(value: str) -> int | str:
    return int(value) if value.lstrip("-").isdigit() else value


def _is_bound(claim: JsonObject) -> bool:
    return bool((claim.get("status") or {}).get("phase") == "Bound")


def _normalize_source(spec: JsonObject) -> None:
    """Drop a `dataSource` that is none, and make the two fields for the source say the same."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and (source.get("kind"), source.get("apiGroup") or "") not in _KIND_AND_GROUP:
        del spec["dataSource"]
        source = None
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        named = {field: reference.get(field) for field in ("apiGroup", "kind", "name")}
        if (named["kind"], named["apiGroup"] or "") in _KIND_AND_GROUP:
            spec["dataSource"] = named
    for field in ("dataSource", "dataSourceRef"):
        if field in spec:
            spec[field].setdefault("apiGroup", None)


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
    attributes = new.get("volumeAttributesClassName")
    if before.get("volumeAttributesClassName") and not attributes:
        what = "nil" if attributes is None else "an empty string"
        detail = f"update from non-nil value to {what} is forbidden"
        yield FieldError("spec.volumeAttributesClassName", "Forbidden", detail=detail)


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
    yield from (unsupported(f"{path}.accessModes", mode, _ACCESS_MODES) for mode in modes if mode not in _ACCESS_MODES)
    if _ALONE in modes and set(modes) != {_ALONE}:
        detail = f"may not use {_ALONE} with other access modes"
        yield FieldError(f"{path}.accessModes", "Forbidden", detail=detail)
    size = requested_size(spec)
    if size is None:
        yield FieldError(f"{path}.resources[storage]", "Required")
    elif size <= ZERO:
        shown = spec["resources"]["requests"]["storage"]
        yield FieldError(f"{path}.resources[storage]", "Invalid", shown, "must be greater than zero")
    for field in ("storageClassName", "volumeAttributesClassName"):
        name = spec.get(field)
        for problem in dns_subdomain(name) if name else ():
            yield FieldError(f"{path}.{field}", "Invalid", name, problem)
    if "volumeMode" in spec and spec["volumeMode"] not in _VOLUME_MODES:
        yield unsupported(f"{path}.volumeMode", spec["volumeMode"], _VOLUME_MODES)
    for field in ("dataSource", "dataSourceRef"):
        if field in spec:
            yield from _validate_source(spec[field], f"{path}.{field}")
    yield from _validate_sources(spec, path)


def _validate_source(source: JsonObject, path: str) -> Iterator[FieldError]:
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    for field in ("name", "kind"):
        if not source.get(field):
            yield FieldError(f"{path}.{field}", "Required")
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield FieldError(path, "Invalid", kind, detail)
    for problem in dns_subdomain(group) if group else ():
        yield FieldError(f"{path}.apiGroup", "Invalid", group, problem)


def _validate_sources(spec: JsonObject, path: str) -> Iterator[FieldError]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        detail = "may not be specified when dataSourceRef.namespace is specified"
        yield FieldError(path, "Invalid", f"{path}.dataSource", detail)
    elif any((source.get(field) or "") != (reference.get(field) or "") for field in ("apiGroup", "kind", "name")):
        yield FieldError(path, "Invalid", f"{path}.dataSource", "must match dataSourceRef")
