"""Event handlers: which TrainJobs an event concerns (map functions).

Guarantees:
- E-1, E-2: no change is hidden, of a TrainJob or of what belongs to it: labels, finalizers and status count as well.
- E-3, E-5: an owner is found by group and kind, whatever its version; the reconciler checks its UID.
- E-6: `runtime_index_values` is the index by which a runtime finds its TrainJobs.
- A change is one of counters only if the JobSet is what its last event showed but for the counts of its Jobs, if no
  count tells of a failure, and if none is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from sys import intern
from typing import Final

from trainmaster.controller.diagnosis.counts import Counts, counts_of, fails
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import split_key
from trainmaster.controller.reconciling.event_handlers import controllers
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

TRAINJOB_OWNER = (GROUP, TRAINJOB_KIND)
_SNAPSHOT_SUFFIX = snapshot_name("")
_COUNTS: Final = "replicatedJobsStatus"


def owner_keys(obj: JsonObject) -> list[str]:
    """The TrainJob that controls an object, by group and kind (E-3); the reconciler checks the UID."""
    metadata = obj["metadata"]
    return [intern(f"{metadata['namespace']}/{name}") for *of, name in controllers(obj) if tuple(of) == TRAINJOB_OWNER]


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


def only_counters_change(change: Delta) -> bool:
    """Tell whether nothing but counters of a JobSet changed, and none for the worse."""
    new = change.new
    if new is None or change.is_addition:
        return False
    try:
        # The last event of nearly every JobSet needs no look at the state before.
        if (new.get("status") or {}).get("terminalState") or (statuses := change.statuses()) is None:
            return False
        before, after = statuses
        if _without_counts(before) != _without_counts(after):
            return False
        return not _is_for_the_worse(counts_of(before.get(_COUNTS) or ()), counts_of(after.get(_COUNTS) or ()))
    except (AttributeError, KeyError, TypeError):
        return False  # its status is none that a JobSet has


def _without_counts(status: JsonObject) -> JsonObject:
    return {field: value for field, value in status.items() if value and field != _COUNTS}


def _is_for_the_worse(before: Mapping[str, Counts], now: Mapping[str, Counts]) -> bool:
    return not before.keys() <= now.keys() or fails(before, now)
