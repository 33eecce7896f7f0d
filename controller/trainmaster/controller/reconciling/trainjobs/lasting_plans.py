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
from trainmaster.controller.reconciling.write_backoff import digest
from trainmaster.runtime.jsontree import JsonObject


class LastingPlans:
    """Remembers, by key of the TrainJob, from what a plan was made that lasts."""

    def __init__(self) -> None:
        self._made_from: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._made_from)

    def __contains__(self, key: str) -> bool:
        return key in self._made_from

    def note(self, key: str, observed: Observed) -> None:
        """Take note that nothing is to be written any more for a TrainJob, while its workload runs."""
        self._made_from[key] = _digest(observed.raw)

    def lasts(self, key: str, observed: Observed) -> bool:
        """Tell whether that holds for a TrainJob as it was observed now."""
        made_from = self._made_from.get(key)
        return made_from is not None and _runs(observed) and made_from == _digest(observed.raw)

    def forget(self, key: str) -> None:
        """Have a TrainJob planned again."""
        self._made_from.pop(key, None)


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
