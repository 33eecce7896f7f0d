"""The monitor: a controller that follows the training of jobs whose resilience policy asks for progress, logs or world.

Reconcilers ask `observe`, which reads nothing; a worker reads what is due of a job, one log at a time, and has the job
reconciled when its policy is broken.

Guarantees:
- A job whose policy asks for nothing of that costs no request, no timer and no memory.
- Of one job at most one log is read in an interval, which follows from the shortest limit of its policy, and one a
  second once a deadline has passed. All jobs together are bounded by `log_reader`: with too many they take turns, and
  are judged late, but never by what was not read.
- Where logs are long, all jobs together have `TURNS_PER_SECOND`: lines without end take a fifth of the manager's time.
- Whatever breaks a policy is told by an event, once in an attempt, also by a manager that takes over: the status of the
  job has what was found. A right that is missing is told, too; the logs are tried again some time.
- What is known of an attempt goes when another one begins, and when the job ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final

import structlog

from trainmaster.controller.conditions import is_true, stored_status
from trainmaster.controller.kube.cache.store import StoreReader, split_key
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.ratelimit import RateLimiter
from trainmaster.controller.kube.workqueue.queue import WorkQueue
from trainmaster.controller.resilience.attempts import attempt_of
from trainmaster.controller.resilience.ledger import Violation
from trainmaster.controller.resilience.log_reader import LogPart, LogReader, LogUnread
from trainmaster.controller.resilience.progress import LONGEST, Attempt, watches
from trainmaster.controller.resilience.standing import Member
from trainmaster.controller.resources import plugin_index
from trainmaster.metrics.resilience import count_violation, drop_numbers, show_number
from trainmaster.runtime.api.constants import FINAL_CONDITIONS, JOBSET_COMPLETED, JOBSET_FAILED
from trainmaster.runtime.api.resilience import EVENT
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resilience import PODS_BY_JOB, BuiltPolicy

log = structlog.get_logger(__name__)

WORKERS: Final = 8
UNTIL_GRANTED: Final = timedelta(seconds=60)
"""Until logs are tried again that may not be read."""

_BY_JOB: Final = plugin_index(PODS_BY_JOB)

TURNS_PER_SECOND: Final = 15.0
"""Of `progress.TURN` lines each: with 16 rules one takes 12 ms."""

_ACTION: Final = "Reconciling"


class _Watched:
    """A job that is followed, in one attempt."""

    def __init__(self, built: BuiltPolicy, attempt: tuple[str, int], told: Iterable[Violation]) -> None:
        self.built = built
        self.id = attempt
        """UID of the JobSet, and the number of the attempt."""

        self.attempt = Attempt(built.policy, told)
        self.pods: list[tuple[str, str | None]] = []
        """Keys and UIDs of those that were seen."""

        self.is_denied = False
        """Whether logs may not be read."""


class Monitor:
    """Follows jobs.

    Args:
        jobsets: The cache of JobSets, which have the keys of their TrainJobs.
    """

    def __init__(
        self,
        client: KubeClient,
        queue: WorkQueue,
        *,
        trainjobs: StoreReader,
        jobsets: StoreReader,
        pods: StoreReader,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._reader = LogReader(client, clock)
        self._turns = RateLimiter(qps=TURNS_PER_SECOND, burst=int(TURNS_PER_SECOND), clock=clock)
        self._queue = queue
        self._trainjobs = trainjobs
        self._jobsets = jobsets
        self._pods = pods
        self._recorder = recorder
        self._clock = clock
        self.on_violation: Callable[[str], object] = lambda _key: None
        """Called with the key of a job that is to be reconciled."""

        self._watched: dict[str, _Watched] = {}

    def observe(self, key: str, trainjob: JsonObject, jobset: JsonObject, built: BuiltPolicy) -> Sequence[Violation]:
        """Take the state of a job with a policy that has not ended; return how the present attempt breaks that."""
        if not watches(built.policy) or _rests(jobset):
            self.forget(key)
            return ()
        attempt = jobset["metadata"]["uid"], built.attempts + ((jobset.get("status") or {}).get("restarts") or 0)
        watched = self._watched.get(key)
        if watched is None or watched.id != attempt:
            try:
                watched = self._watched[key] = _Watched(built, attempt, _stored(trainjob, *attempt))
            except ValueError as error:
                log.warning("a resilience policy cannot be followed", trainjob=key, error=str(error))
                return ()
            self._queue.add(key)
        watched.attempt.take_report(trainjob, self._clock.now())
        self._tell(trainjob, watched)
        return list(watched.attempt.told.values())

    def forget(self, key: str) -> None:
        """Drop everything about a job."""
        watched = self._watched.pop(key, None)
        if watched is not None and watched.attempt.rules:
            namespace, name = split_key(key)
            drop_numbers(namespace or "", name)

    async def look(self, key: str) -> float | None:
        """Look at a job: at its pods, its report, and a log if one is due.

        Returns:
            The seconds until it is to be looked at again; None: it is not followed.
        """
        watched = self._watched.get(key)
        if watched is None or (objects := self._objects(key, watched)) is None:
            return None
        if any(each.action != EVENT for each in watched.attempt.told.values()):
            return LONGEST.total_seconds()  # until then it has ended, or is in its next attempt
        trainjob, jobset = objects
        self._see_pods(key, watched, jobset)
        attempt, before = watched.attempt, watched.attempt.told.copy()
        attempt.take_report(trainjob, self._clock.now())
        member = attempt.next_read(self._clock.now())
        if member is not None:
            await self._read(trainjob, watched, member)
        if self._watched.get(key) is not watched:
            return None
        attempt.judge(self._clock.now())
        self._tell(trainjob, watched)
        if attempt.told != before:
            self.on_violation(key)
        due = attempt.due(self._clock.now())
        return (max(due, UNTIL_GRANTED) if watched.is_denied else due).total_seconds()

    def _objects(self, key: str, watched: _Watched) -> tuple[JsonObject, JsonObject] | None:
        """Return a job and its JobSet as they are now; else drop everything about the job."""
        trainjob, jobset = self._trainjobs.get(key), self._jobsets.get(key)
        if trainjob is not None and jobset is not None and jobset["metadata"]["uid"] == watched.id[0]:
            conditions = stored_status(trainjob)["conditions"]
            if not _rests(jobset) and not any(is_true(conditions, each) for each in FINAL_CONDITIONS):
                return trainjob, jobset
        self.forget(key)
        return None

    def _see_pods(self, key: str, watched: _Watched, jobset: JsonObject) -> None:
        """Take note of the pods; once all have run, only if there are others."""
        # Without the plugin that has pods watched there are none.
        keys = self._pods.index_keys(_BY_JOB, key) if _BY_JOB in self._pods.index_names() else []
        there = [(pod, self._pods.uid(pod)) for pod in keys]
        if watched.attempt.all_run and there == watched.pods:
            return
        watched.pods = there
        pods = [each for each in map(self._pods.get, keys) if each is not None and attempt_of(each) == watched.id]
        before = {each.uid for each in watched.attempt.members}
        if before and before.isdisjoint(each["metadata"]["uid"] for each in pods):
            watched.attempt = Attempt(watched.built.policy)  # others took their places: it begins anew
        watched.attempt.see_pods(pods, jobset, self._clock.now())

    async def _read(self, trainjob: JsonObject, watched: _Watched, member: Member) -> None:
        """Read the log of a pod."""
        attempt, metadata, asked_at = watched.attempt, trainjob["metadata"], self._clock.now()
        part: LogPart | LogUnread
        try:
            part = await self._reader.read(
                metadata["namespace"],
                member.pod,
                member.container,
                after=member.position,
                tail=attempt.tail(member, asked_at),
            )
        except LogUnread as error:
            part = error
            if error.is_forbidden and not watched.is_denied:
                note = f"its resilience policy cannot be followed: {error}"
                self._recorder.event(trainjob, type="Warning", reason="LogsDenied", action=_ACTION, note=note)
        watched.is_denied = isinstance(part, LogUnread) and part.is_forbidden
        for _ in attempt.take_log(member, part, asked_at, self._clock.now()):
            await self._turns.wait()
            await self._clock.sleep(0)
        for rule in attempt.rules:
            if rule.number is not None:
                show_number(metadata["namespace"], metadata["name"], rule.rule.name, rule.number)

    def _tell(self, trainjob: JsonObject, watched: _Watched) -> None:
        """Tell what was found."""
        for each in watched.attempt.found:
            log.info("a resilience policy is broken", reason=each.reason, message=each.message, action=each.action)
            count_violation(each.reason)
            self._recorder.event(trainjob, type="Warning", reason=each.reason, action=_ACTION, note=each.message)
        watched.attempt.found.clear()


def _stored(trainjob: JsonObject, jobset_uid: str, attempt: int) -> Iterator[Violation]:
    """Yield the violations of an attempt that the status of a job tells."""
    status = stored_status(trainjob).get("resilience") or {}
    for each in status.get("violations") or () if status.get("jobSet") == jobset_uid else ():
        if each["attempt"] == attempt:
            yield Violation(each["reason"], each.get("message", ""), EVENT, each.get("since", ""), each.get("rule", ""))


def _rests(jobset: JsonObject) -> bool:
    """Return whether a JobSet has ended, goes, or is suspended."""
    conditions = stored_status(jobset)["conditions"]
    has_ended = is_true(conditions, JOBSET_COMPLETED) or is_true(conditions, JOBSET_FAILED)
    return has_ended or bool(jobset["metadata"].get("deletionTimestamp") or (jobset.get("spec") or {}).get("suspend"))
