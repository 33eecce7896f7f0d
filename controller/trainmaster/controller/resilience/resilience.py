"""Where the decider of TrainJobs learns what their resilience policies have it do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from trainmaster.controller.conditions import is_true, stored_status
from trainmaster.controller.kube.cache.store import StoreReader
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.redaction import redact
from trainmaster.controller.resilience.attempts import AttemptFacts, AttemptObserver
from trainmaster.controller.resilience.goodput import QUEUED, RESTARTING, RETRY, AttemptTimes, seconds_of
from trainmaster.controller.resilience.ledger import LONGEST_MESSAGE, Verdict, Violation, judge
from trainmaster.controller.resilience.monitor import Monitor
from trainmaster.runtime.api.constants import JOBSET_FAILED, RESILIENCE_ANNOTATION
from trainmaster.runtime.api.resilience import EVENT
from trainmaster.runtime.elastic import elastic_sizes
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resilience import built_policy


class Resilience:
    """Judges jobs with a policy.

    Args:
        on_lost_after: Called for each job whose policy has `nodes.lostAfter`.
    """

    def __init__(
        self,
        clock: Clock,
        trainjobs: StoreReader,
        monitor: Monitor,
        *,
        on_lost_after: Callable[[], object] = lambda: None,
    ) -> None:
        self._clock = clock
        self._monitor = monitor
        self._on_lost_after = on_lost_after
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
        if built.policy.nodes is not None and built.policy.nodes.lost_after is not None:
            self._on_lost_after()
        uid, status = jobset["metadata"]["uid"], jobset.get("status") or {}
        state = uid, status.get("restarts") or 0, is_true(stored_status(jobset)["conditions"], JOBSET_FAILED)
        now = self._clock.monotonic()
        if self._seen.get(key, (None, 0.0))[0] != state:
            self._seen[key] = state, now
        stored = (trainjob.get("status") or {}).get("resilience") or {}
        facts = partial(self.attempts.facts, key, uid)
        told = self._monitor.observe(key, trainjob, jobset, built)
        waited = now - self._seen[key][1]
        verdict = judge(
            built,
            stored,
            jobset,
            facts,
            violation=next((each for each in told if each.action != EVENT), None),
            sizes=elastic_sizes(trainjob, jobset),
            waited=waited,
            now=self._clock.now(),
        )
        if verdict.status is not stored:
            _keep(verdict, told)
        verdict.times = [*_cut_off(stored, jobset), *_times(verdict, facts, told)]
        return verdict

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._seen.pop(key, None)
        self.attempts.forget(key)
        self._monitor.forget(key)


def _keep(verdict: Verdict, told: Sequence[Violation]) -> None:
    """Put the violations of the attempt that goes on into the status, for the manager that takes over."""
    verdict.status.pop("violations", None)
    for each in told if not verdict.news else ():
        if each.action == EVENT:
            fields = {
                "reason": each.reason,
                "message": redact(each.message)[:LONGEST_MESSAGE],
                "since": each.since,
                "rule": each.rule,
            }
            violation = {"attempt": verdict.ended, **{name: value for name, value in fields.items() if value}}
            verdict.status.setdefault("violations", []).append(violation)


def _cut_off(stored: JsonObject, jobset: JsonObject) -> Iterator[AttemptTimes]:
    """Yield the attempt that ended because somebody deleted the JobSet, which no ledger tells of."""
    phase = (stored.get("goodput") or {}).get("phase")
    if phase not in (None, QUEUED, RESTARTING) and stored.get("jobSet") != jobset["metadata"]["uid"]:
        yield AttemptTimes(ended=seconds_of(jobset["metadata"].get("creationTimestamp")))


def _times(verdict: Verdict, facts: Callable[[int], AttemptFacts], told: Sequence[Violation]) -> Iterator[AttemptTimes]:
    """Yield the attempts whose end was found just now, and the one that goes on; violations are of the last one."""
    stall = next((each for each in told if each.since), None)
    stalled = seconds_of(stall.since) if stall is not None else None
    for attempt in verdict.news:
        is_stalled = stall is not None and attempt["reason"] == stall.reason
        yield AttemptTimes(
            facts(attempt["number"]).pods.values(),
            stalled=stalled if is_stalled else None,
            ended=seconds_of(attempt["endedAt"]),
            loses=attempt["reason"] != RETRY,
        )
    yield AttemptTimes(facts(verdict.ended).pods.values(), stalled=stalled)
