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
