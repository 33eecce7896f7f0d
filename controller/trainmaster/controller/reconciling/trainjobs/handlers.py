"""Handlers: which events concern which TrainJobs, and what the caches keep of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trainmaster.controller.reconciling.trainjobs.comparing import owned_fields_of
from trainmaster.controller.reconciling.trainjobs.planning import OWNED_FIELDS
from trainmaster.runtime.api.constants import (
    CLUSTER_TRAINING_RUNTIME_KIND,
    FIELD_MANAGER,
    GROUP,
    TRAINING_RUNTIME_KIND,
    TRAINJOB_KIND,
    snapshot_name,
)
from trainmaster.runtime.facts import Watch
from trainmaster.runtime.jsontree import JsonObject

RUNTIME_INDEX = "runtime"
"""Index of TrainJobs by the runtime that they name: `Kind/namespace/name`, with an empty namespace if cluster-
scoped.
"""

_SNAPSHOT_SUFFIX = snapshot_name("")


def owner_keys(obj: JsonObject) -> list[str]:
    """The TrainJob that controls an object, by group and kind (E-3); the reconciler checks the UID."""
    metadata = obj["metadata"]
    return [
        f"{metadata['namespace']}/{reference['name']}"
        for reference in metadata.get("ownerReferences") or []
        if reference.get("controller")
        and reference["kind"] == TRAINJOB_KIND
        and reference["apiVersion"].partition("/")[0] == GROUP
    ]


def config_map_keys(obj: JsonObject) -> list[str]:
    """The TrainJob that a ConfigMap concerns: its owner, or the one whose snapshot's name it occupies."""
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    keys = owner_keys(obj)
    if not keys and name.endswith(_SNAPSHOT_SUFFIX):
        keys = [f"{namespace}/{name.removesuffix(_SNAPSHOT_SUFFIX)}"]
    return keys


def runtime_index_values(trainjob: JsonObject) -> Iterable[str]:
    """What the runtime index stores for a TrainJob."""
    reference = (trainjob.get("spec") or {}).get("runtimeRef") or {}
    kind, name = reference.get("kind") or CLUSTER_TRAINING_RUNTIME_KIND, reference.get("name")
    if name:
        namespaced = kind == TRAINING_RUNTIME_KIND
        yield f"{kind}/{trainjob['metadata']['namespace'] if namespaced else ''}/{name}"


def runtime_index_value(runtime: JsonObject) -> str:
    """The value under which the runtime index finds the TrainJobs of a runtime."""
    return f"{runtime['kind']}/{runtime['metadata'].get('namespace', '')}/{runtime['metadata']['name']}"


def keys_of(watch: Watch) -> Callable[[JsonObject], list[str]]:
    """How objects of a kind that a plugin declared map to TrainJobs."""
    if watch.jobs is None:
        return owner_keys
    to_jobs = watch.jobs
    return lambda obj: [f"{namespace}/{name}" for namespace, name in to_jobs(obj)]


def trim(obj: JsonObject) -> JsonObject:
    """Drop what nobody reads from an object before it is cached (S-16: idempotent)."""
    obj["metadata"].pop("managedFields", None)
    return obj


def trim_child(obj: JsonObject) -> JsonObject:
    """Trim an object that we apply: of its managedFields, what we own ourselves stays."""
    metadata = obj["metadata"]
    if "managedFields" in metadata:
        owned = owned_fields_of(obj, FIELD_MANAGER)
        if owned is not None:
            metadata[OWNED_FIELDS] = owned
    return trim(obj)


def trim_config_map(obj: JsonObject) -> JsonObject:
    """Trim a ConfigMap: those that are no TrainJob's keep their identity and owners only."""
    if owner_keys(obj):
        return trim_child(obj)
    for field in ("data", "binaryData"):
        obj.pop(field, None)
    for field in ("annotations", "labels"):
        obj["metadata"].pop(field, None)
    return trim(obj)
