"""Rules of the spec of a PersistentVolumeClaim, which ephemeral volumes have as well. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainmaster.devcluster.apiserver.errors import FieldError, unsupported
from trainmaster.devcluster.apiserver.registry.labels import label_selector
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.names import dns_subdomain
from trainmaster.runtime.quantity import Quantity

ZERO: Final = Quantity.parse(0)
_ACCESS_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
_ALONE = "ReadWriteOncePod"
_VOLUME_MODES = ["Block", "Filesystem"]


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
