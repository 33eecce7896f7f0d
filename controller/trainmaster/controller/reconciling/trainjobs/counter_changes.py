"""Counter changes: events of JobSets that tell of nothing but how many pods do what. Pure.

The pods of a job come up one by one, and each of them is an event of its JobSet. The counts are written at most once a
second (see `StatusWriter`), so a reconcile for each of these events would find out that it has to wait.

Guarantees:
- A change is one of counters only if the JobSet is what its last event showed but for the counts of its Jobs, if no
  count tells of a failure, and if none is gone.
- Nothing is remembered: what the last event showed is what the cache held before this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.reconciling.trainjobs.replicated_jobs import Counts, counts_of, fails
from trainmaster.runtime.jsontree import JsonObject

_COUNTS: Final = "replicatedJobsStatus"


def only_counters_change(change: Delta) -> bool:
    """Tell whether nothing but counters of a JobSet changed, and none for the worse."""
    new = change.new
    if new is None or change.is_addition:
        return False
    try:
        status = new.get("status") or {}
        # The last event of nearly every JobSet, for which the state before need not be decoded.
        if status.get("terminalState"):
            return False
        old = change.old
        return (
            old is not None and _is_same_but_for_counts(old, new) and not _is_for_the_worse(_counts(old), _counts(new))
        )
    except (AttributeError, KeyError, TypeError):
        return False  # its status is none that a JobSet has


def _is_same_but_for_counts(old: JsonObject, new: JsonObject) -> bool:
    if _without_counts(old.get("status") or {}) != _without_counts(new.get("status") or {}):
        return False
    before, after = {**old["metadata"], "resourceVersion": ""}, {**new["metadata"], "resourceVersion": ""}
    # Each change of a spec is another generation.
    return before == after and bool(after.get("generation") or old.get("spec") == new.get("spec"))


def _without_counts(status: JsonObject) -> JsonObject:
    return {field: value for field, value in status.items() if value and field != _COUNTS}


def _counts(jobset: JsonObject) -> dict[str, Counts]:
    return counts_of((jobset.get("status") or {}).get(_COUNTS) or ())


def _is_for_the_worse(before: Mapping[str, Counts], now: Mapping[str, Counts]) -> bool:
    return not before.keys() <= now.keys() or fails(before, now)
