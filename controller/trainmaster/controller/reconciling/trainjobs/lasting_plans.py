"""What need not be decided anew while the workload of a TrainJob runs: its plan, and what mere counters mean.

The status of a workload changes often, and makes no difference to what its TrainJob is built of. So the plan of a
TrainJob that consists of its snapshot and of one workload, which is left alone while it runs, is not made again for it.

Guarantees:
- A plan lasts only while the TrainJob is the same but for its status, and its workload is there, runs, and has Jobs.
- Whatever else has the TrainJob reconciled than an event of itself or of its workload has it planned again: whoever is
  told of that forgets the plan. So does a restart.
- What is remembered are some two hundred bytes for each TrainJob that runs.

The pods of a job come up one by one, and each of them is an event of its JobSet. The counts are written at most once a
second (see `StatusWriter`), so a reconcile for each of these events would find out that it has to wait. A change is one
of counters only if the JobSet is what its last event showed but for the counts of its Jobs, if no count tells of a
failure, and if none is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainmaster.controller.diagnosis.counts import Counts, counts_of, fails, without_jobs
from trainmaster.controller.kube.cache.delta import Delta
from trainmaster.controller.reconciling.trainjobs.observe import Observed
from trainmaster.controller.reconciling.trainjobs.plan import time_to_live
from trainmaster.controller.reconciling.write_backoff import digest
from trainmaster.runtime.jsontree import JsonObject

_COUNTS: Final = "replicatedJobsStatus"


class LastingPlans:
    """Remembers, by key of the TrainJob, from what a plan was made that lasts."""

    def __init__(self) -> None:
        self._plans: dict[str, tuple[int, int | None]] = {}
        """What each was made from, and the time to live of its TrainJob."""

    def __len__(self) -> int:
        return len(self._plans)

    def __contains__(self, key: str) -> bool:
        return key in self._plans

    def note(self, key: str, observed: Observed, *, time_to_live: int | None) -> None:
        """Take note that nothing is to be written any more for a TrainJob, while its workload runs.

        Args:
            key: Its key.
            observed: It.
            time_to_live: For how many seconds it is kept after its end; None: for ever.
        """
        self._plans[key] = _digest(observed.raw), time_to_live

    def lasts(self, key: str, observed: Observed) -> bool:
        """Tell whether that holds for a TrainJob as it was observed now."""
        made = self._plans.get(key)
        return made is not None and _runs(observed) and made[0] == _digest(observed.raw)

    def time_to_live(self, key: str, observed: Observed) -> int | None:
        """Return for how many seconds a TrainJob is kept after its end; None: for ever."""
        made = self._plans.get(key)
        if made is not None and made[0] == _digest(observed.raw):
            return made[1]
        return time_to_live(observed)

    def forget(self, key: str) -> None:
        """Have a TrainJob planned again."""
        self._plans.pop(key, None)


def _runs(observed: Observed) -> bool:
    """Tell whether a TrainJob is not suspended, and its only workload is at work."""
    if observed.job.spec.suspend or observed.snapshot is None or len(observed.workloads) != 1:
        return False
    (workload,) = observed.workloads.values()
    if workload["metadata"].get("deletionTimestamp") or (workload.get("spec") or {}).get("suspend"):
        return False
    return not without_jobs(workload)


def _digest(trainjob: JsonObject) -> int:
    metadata = {**trainjob["metadata"], "resourceVersion": None}
    # Each change of a spec is another generation.
    return digest([metadata, None if metadata.get("generation") else trainjob.get("spec")])


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
