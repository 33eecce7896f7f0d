"""Lasting plans: TrainJobs of which nothing is to be written for as long as their workload runs.

The status of a workload changes often, and makes no difference to what its TrainJob is built of. So the plan of a
TrainJob that consists of its snapshot and of one workload, which is left alone while it runs, is not made again for it.

Guarantees:
- A plan lasts only while the TrainJob is the same but for its status, and its workload is there, runs, and has Jobs.
- Whatever else has the TrainJob reconciled than an event of itself or of its workload has it planned again: whoever is
  told of that forgets the plan. So does a restart.
- What is remembered are some two hundred bytes for each TrainJob that runs.
"""

from __future__ import annotations

from trainmaster.controller.reconciling.trainjobs.job_creation import without_jobs
from trainmaster.controller.reconciling.trainjobs.observe import Observed
from trainmaster.controller.reconciling.trainjobs.plan import time_to_live
from trainmaster.controller.reconciling.write_backoff import digest
from trainmaster.runtime.jsontree import JsonObject


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

    def end(self, key: str, observed: Observed) -> int | None:
        """Forget the plan of a TrainJob that has ended; return for how many seconds it is kept now."""
        made = self._plans.pop(key, None)
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
