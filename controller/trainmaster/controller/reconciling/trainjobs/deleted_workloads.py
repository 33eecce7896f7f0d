"""Deleted workloads: the last states of JobSets that are gone.

A JobSet with a `ttlSecondsAfterFinished` may be deleted before its end was observed. Whether the TrainJob has
trained or has lost its workload on the way then depends on the last state of what is not there any more.

Guarantees:
- The last state is that of the deletion itself. Of a JobSet that vanished while nobody watched, it counts only if it
  had ended by then: an end is final, but anything else may have been followed by one. One that cannot be read tells
  nothing.
- What is remembered is bounded by the TrainJobs that have not ended: it is forgotten with the TrainJob, or when that
  ends, also by managers that only stand by.
- Nothing but convenience depends on it: after a restart nothing is remembered, and the plan is made without.
"""

from __future__ import annotations

from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.reconciling.conditions import is_true
from trainmaster.controller.reconciling.trainjobs.event_handlers import owner_keys
from trainmaster.runtime.api.constants import FINAL_CONDITIONS, JOBSET_COMPLETED, JOBSET_FAILED
from trainmaster.runtime.jsontree import JsonObject, why_unreadable


class DeletedWorkloads:
    """The last states of JobSets whose TrainJobs have not ended.

    Args:
        trainjobs: The cache of TrainJobs.
    """

    def __init__(self, trainjobs: Store) -> None:
        self._trainjobs = trainjobs
        self._last_states: dict[str, JsonObject] = {}
        """By key of the TrainJob."""

    def __len__(self) -> int:
        return len(self._last_states)

    def last_state(self, key: str) -> JsonObject | None:
        """Return the last state of the JobSet of a TrainJob, if it is gone and if that state is known."""
        return self._last_states.get(key)

    def on_jobset_event(self, change: Delta) -> None:
        """Handle an event of a JobSet."""
        if not change.is_deletion:
            return
        jobset = change.old
        for key in owner_keys(jobset) if jobset is not None else ():
            self._last_states.pop(key, None)
            trainjob = self._trainjobs.get(key)
            if (
                jobset is not None
                and why_unreadable(jobset) is None
                and not (change.final_state_unknown and not _has_ended(jobset))
                and _is_unfinished(trainjob)
            ):
                self._last_states[key] = {field: jobset[field] for field in _KEPT if field in jobset}

    def on_trainjob_event(self, change: Delta) -> None:
        """Handle an event of a TrainJob."""
        if change.key in self._last_states and not _is_unfinished(change.new):
            del self._last_states[change.key]


_KEPT = ("apiVersion", "kind", "metadata", "status")


def _is_unfinished(trainjob: JsonObject | None) -> bool:
    if trainjob is None:
        return False
    conditions = _conditions(trainjob)
    return not any(is_true(conditions, final) for final in FINAL_CONDITIONS)


def _has_ended(jobset: JsonObject) -> bool:
    conditions = _conditions(jobset)
    return is_true(conditions, JOBSET_COMPLETED) or is_true(conditions, JOBSET_FAILED)


def _conditions(obj: JsonObject) -> list[JsonObject]:
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
