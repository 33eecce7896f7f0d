"""The CustomResourceDefinition of a kind: what the API server knows of it has to be what its class says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jsontree import JsonObject


def check_definition(kind: JobKind, definition: JsonObject) -> Iterator[str]:
    """Return in what a definition is at odds with a kind."""
    spec, (version, place) = definition.get("spec") or {}, _version(kind, definition)
    names = spec.get("names") or {}
    for path, found, wanted in (
        ("metadata.name", (definition.get("metadata") or {}).get("name"), f"{kind.plural}.{kind.group}"),
        ("spec.group", spec.get("group"), kind.group),
        ("spec.scope", spec.get("scope"), "Namespaced"),
        ("spec.names.kind", names.get("kind"), kind.kind),
        ("spec.names.plural", names.get("plural"), kind.plural),
    ):
        yield from _unlike(path, found, wanted)
    if version is None:
        yield f"the definition has no version {kind.version} that is served and stored"
        return
    subresources = version.get("subresources") or {}
    if "status" not in subresources:
        yield f"{place}.subresources of the definition lacks status: {{}}, so nothing can be told of a job"
    for name, path in _scale(kind).items():
        yield from _unlike(f"{place}.subresources.scale.{name}", (subresources.get("scale") or {}).get(name), path)
    if "scale" in subresources and not kind.scale_type:
        yield f"{place}.subresources of the definition has scale, but the class has no scale_type"
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    for field in (("spec", kind.replica_specs_field), ("status", "conditions"), ("status", "replicaStatuses")):
        if not _has(schema, field):
            yield f"{place}.schema of the definition lacks {'.'.join(field)}, which would be dropped"


def _version(kind: JobKind, definition: JsonObject) -> tuple[JsonObject | None, str]:
    for index, version in enumerate((definition.get("spec") or {}).get("versions") or []):
        if version.get("name") == kind.version and version.get("served") and version.get("storage"):
            return version, f"spec.versions[{index}]"
    return None, ""


def _scale(kind: JobKind) -> dict[str, str]:
    if not kind.scale_type:
        return {}
    return {
        "specReplicasPath": f".spec.{kind.replica_specs_field}.{kind.scale_type}.replicas",
        "statusReplicasPath": f".status.replicaStatuses.{kind.scale_type}.active",
        "labelSelectorPath": f".status.replicaStatuses.{kind.scale_type}.selector",
    }


def _unlike(path: str, found: Any, wanted: str) -> Iterator[str]:
    if found != wanted:
        yield f"{path} of the definition is {found!r}, but the class says {wanted!r}"


def _has(schema: JsonObject, path: Sequence[str]) -> bool:
    """Tell whether a field is kept: it is described, or what is above it keeps all fields."""
    if not path or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    name, *rest = path
    below = (schema.get("properties") or {}).get(name)
    return below is not None and _has(below, rest)
