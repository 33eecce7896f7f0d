"""Event handlers: which TrainJobs an event concerns (map functions), what the caches keep of an object (transforms).

Guarantees:
- E-1, E-2: no change is hidden, of a TrainJob or of what belongs to it: labels, finalizers and status count as well.
- E-3, E-5: an owner is found by group and kind, whatever its version; the reconciler checks its UID.
- E-6: `runtime_index_values` is the index by which a runtime finds its TrainJobs.
- S-16, S-17: what nobody reads is dropped before it is cached, and dropping it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern

from trainmaster.controller.kube.cache.store import split_key
from trainmaster.controller.reconciling.event_handlers import strip_to_identity
from trainmaster.controller.reconciling.managedfields import strip_managed_fields
from trainmaster.runtime.api.constants import (
    CLUSTER_TRAINING_RUNTIME_KIND,
    GROUP,
    TRAINING_RUNTIME_KIND,
    TRAINJOB_KIND,
    snapshot_name,
)
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
        intern(f"{metadata['namespace']}/{reference['name']}")
        for reference in metadata.get("ownerReferences") or []
        if reference.get("controller")
        and reference["kind"] == TRAINJOB_KIND
        and reference["apiVersion"].partition("/")[0] == GROUP
    ]


def usual_owner(key: str) -> str:
    """The key of the TrainJob to which an object belongs most often: it has the same name, but for its snapshot."""
    return key.removesuffix(_SNAPSHOT_SUFFIX)


def config_map_keys(obj: JsonObject) -> list[str]:
    """The TrainJob that a ConfigMap concerns: its owner, or the one whose snapshot's name it occupies."""
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    keys = owner_keys(obj)
    if not keys and name.endswith(_SNAPSHOT_SUFFIX):
        keys = [f"{namespace}/{name.removesuffix(_SNAPSHOT_SUFFIX)}"]
    return keys


def runtime_index_values(trainjob: JsonObject) -> Iterable[str]:
    """The index function of `RUNTIME_INDEX`: under which values a TrainJob is found."""
    reference = (trainjob.get("spec") or {}).get("runtimeRef") or {}
    kind, name = reference.get("kind") or CLUSTER_TRAINING_RUNTIME_KIND, reference.get("name")
    if name:
        namespaced = kind == TRAINING_RUNTIME_KIND
        yield f"{kind}/{trainjob['metadata']['namespace'] if namespaced else ''}/{name}"


def runtime_index_value(kind: str, key: str) -> str:
    """The value under which the runtime index finds the TrainJobs of a runtime, given by kind and key."""
    namespace, name = split_key(key)
    return f"{kind}/{namespace or ''}/{name}"


def strip_foreign_objects(obj: JsonObject) -> JsonObject:
    """Strip an object of a kind that we apply; of one that is no TrainJob's only its identity and its owners stay."""
    if owner_keys(obj):
        return strip_managed_fields(obj)
    return strip_to_identity(obj)
