"""Where the decider of TrainJobs learns what their resilience policies have it do."""

from __future__ import annotations

from trainmaster.controller.conditions import is_true, stored_status
from trainmaster.controller.kube.cache.store import StoreReader
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.resilience.attempts import AttemptObserver
from trainmaster.controller.resilience.ledger import Verdict, judge
from trainmaster.runtime.api.constants import JOBSET_FAILED, RESILIENCE_ANNOTATION
from trainmaster.runtime.elastic import elastic_sizes
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resilience import built_policy


class Resilience:
    """Judges jobs with a policy.

    Args:
        clock: The time.
        trainjobs: The cache of TrainJobs.
    """

    def __init__(self, clock: Clock, trainjobs: StoreReader) -> None:
        self._clock = clock
        self.attempts = AttemptObserver(clock, trainjobs)
        """What pods told; events of them go there."""

        self._seen: dict[str, tuple[tuple[str, int, bool], float]] = {}
        """By key: the state of the JobSet, and since when it is known."""

    def judge(self, key: str, trainjob: JsonObject, jobset: JsonObject) -> Verdict | None:
        """Return what is to be done about a TrainJob that has not ended; None if it has no policy."""
        if RESILIENCE_ANNOTATION not in (jobset["metadata"].get("annotations") or ()):
            return None  # as nearly always
        built = built_policy(jobset)
        if built is None:
            return None
        uid, status = jobset["metadata"]["uid"], jobset.get("status") or {}
        state = uid, status.get("restarts") or 0, is_true(stored_status(jobset)["conditions"], JOBSET_FAILED)
        now = self._clock.monotonic()
        if self._seen.get(key, (None, 0.0))[0] != state:
            self._seen[key] = state, now
        return judge(
            built,
            (trainjob.get("status") or {}).get("resilience") or {},
            jobset,
            lambda attempt: self.attempts.facts(key, uid, attempt),
            sizes=elastic_sizes(trainjob, jobset),
            waited=now - self._seen[key][1],
            now=self._clock.now(),
        )

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._seen.pop(key, None)
        self.attempts.forget(key)
