"""Deleted workloads: the last states of workloads that are gone.

A workload with a `ttlSecondsAfterFinished` may be deleted before its end was observed. Whether the TrainJob has
trained or has lost its workload on the way then depends on the last state of what is not there any more.

Guarantees:
- The last state is that of the deletion itself. Of a workload that vanished while nobody watched, it is what was seen
  last, and only an end counts, which is final: anything else may have been followed by one. One that cannot be read
  tells nothing. What is an end, its plugin says.
- What is remembered is bounded by the TrainJobs that have not ended: it is forgotten with the TrainJob, or when that
  ends, also by managers that only stand by.
- Nothing but convenience depends on it: after a restart nothing is remembered, and the plan is made without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from trainmaster.controller.conditions import is_true, stored_status
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.reconciling.trainjobs.event_handlers import owner_keys
from trainmaster.runtime.api.constants import FINAL_CONDITIONS
from trainmaster.runtime.jsontree import JsonObject, why_unreadable


@dataclass(frozen=True, slots=True)
class DeletedWorkload:
    """A workload that is gone."""

    state: JsonObject
    """What was seen of it last."""

    seen: bool
    """Whether that is the state in which it was deleted."""


class DeletedWorkloads:
    """The last states of workloads whose TrainJobs have not ended.

    Args:
        trainjobs: The cache of TrainJobs.
    """

    def __init__(self, trainjobs: Store) -> None:
        self._trainjobs = trainjobs
        self._last_states: dict[str, dict[tuple[str, str], tuple[bytes, bool]]] = {}
        """By key of the TrainJob, then by kind and key of the workload: encoded, since decoded ones are large."""

    def __len__(self) -> int:
        return len(self._last_states)

    def last_states(self, key: str) -> Sequence[DeletedWorkload]:
        """Return the last states of the workloads of a TrainJob that are gone."""
        states = self._last_states.get(key)
        if states is None:
            return ()
        return [DeletedWorkload(orjson.loads(state), seen) for state, seen in states.values()]

    def on_workload_event(self, change: Delta) -> None:
        """Handle an event of a workload."""
        if not change.is_deletion:
            return
        workload = change.old
        for key in owner_keys(workload) if workload is not None else ():
            if workload is None or why_unreadable(workload) is not None:
                self._forget(key, change.key)
            elif _is_unfinished(self._trainjobs.get(key)):
                states = self._last_states.setdefault(key, {})
                states[workload["kind"], change.key] = orjson.dumps(workload), not change.final_state_unknown

    def on_trainjob_event(self, change: Delta) -> None:
        """Handle an event of a TrainJob."""
        if change.key in self._last_states and not _is_unfinished(change.new):
            del self._last_states[change.key]

    def _forget(self, key: str, workload: str) -> None:
        states = self._last_states.get(key, {})
        for kind, name in list(states):
            if name == workload:
                del states[kind, name]
        if not states:
            self._last_states.pop(key, None)


def _is_unfinished(trainjob: JsonObject | None) -> bool:
    if trainjob is None:
        return False
    conditions = stored_status(trainjob)["conditions"]
    return not any(is_true(conditions, final) for final in FINAL_CONDITIONS)
