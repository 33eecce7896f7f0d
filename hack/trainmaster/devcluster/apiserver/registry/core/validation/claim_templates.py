"""Rules of claims that are made for a pod: of the template in an ephemeral volume."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.devcluster.apiserver.errors import FieldError
from trainmaster.devcluster.apiserver.registry.core.validation.fields import (
    forbidden,
    one_of,
    optional_name,
    required,
)
from trainmaster.devcluster.apiserver.registry.core.validation.selectors import label_key, label_selector, labels
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_OF_TEMPLATES = ("annotations", "labels")


def validate_ephemeral(path: str, source: JsonObject) -> Iterator[FieldError]:
    """Check an ephemeral volume."""
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield required(f"{path}.volumeClaimTemplate")
        return
    here = f"{path}.volumeClaimTemplate"
    metadata = template.get("metadata") or {}
    for key in metadata.get("annotations") or ():
        yield from label_key(f"{here}.metadata.annotations", key.lower())
    yield from labels(f"{here}.metadata.labels", metadata.get("labels"))
    for field, value in metadata.items():
        if field not in _OF_TEMPLATES and value:
            yield forbidden(f"{here}.metadata.{field}", "cannot be set")
    yield from _claim_spec(f"{here}.spec", template.get("spec") or {})


def _claim_spec(path: str, spec: JsonObject) -> Iterator[FieldError]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from label_selector(f"{path}.selector", spec.get("selector"))
    for mode in modes:
        yield from one_of(f"{path}.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and not {"ReadWriteOncePod"}.issuperset(modes):
        yield forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield required(f"{path}.resources[storage]")
    elif Quantity.parse(size).nano <= 0:
        yield FieldError(f"{path}.resources[storage]", "Invalid", size, "must be greater than zero")
    yield from optional_name(spec, path, "storageClassName")
    if (mode := spec.get("volumeMode")) is not None:
        yield from one_of(f"{path}.volumeMode", mode, ("Block", "Filesystem"))
    yield from optional_name(spec, path, "volumeAttributesClassName")
    source = spec.get("dataSource")
    if source is not None:
        for field in ("name", "kind"):
            if not source.get(field):
                yield required(f"{path}.dataSource.{field}")
