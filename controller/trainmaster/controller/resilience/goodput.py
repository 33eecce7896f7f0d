"""What the time of a TrainJob was spent on: queued, starting, productive, lost, stalled or restarting. Pure.

Guarantees:
- The seconds of all kinds add up to the time from the creation of the TrainJob to `since`, whatever happens to it.
- Times are those that objects tell, to the second. A manager that lags, or was away, does not falsify them.
- Nothing is written because time goes by: who reads adds the time since `since` to that of the phase (`up_to`).

A checkpoint that the training reports says what a failure costs. Without one that is an estimate: what came after its
last report of progress, or the whole attempt.

TrainJobs with a resilience policy have it in their status, since the manager watches their pods. What others have spent
is computed where it is shown, by the same function, from what their conditions and pods still tell: what came before
their last suspension counts as queued, and attempts of which no pod is left as one that trained until the next began.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from trainmaster.controller.container_failures import restart_attempt
from trainmaster.controller.job_fields import JobFields, mapping, mappings, number, text
from trainmaster.controller.kube.clock import parse_time, time_text
from trainmaster.runtime.api.constants import FAILED, SUSPENDED
from trainmaster.runtime.jsontree import JsonObject

QUEUED: Final = "Queued"
STARTING: Final = "Starting"
PRODUCTIVE: Final = "Productive"
STALLED: Final = "Stalled"
RESTARTING: Final = "Restarting"
"""Phases."""

LOST: Final = "Lost"

KINDS: Final = {each: f"{each.lower()}Seconds" for each in (PRODUCTIVE, QUEUED, STARTING, RESTARTING, STALLED, LOST)}
"""What time is spent on, with the fields of the status."""

RETRY: Final = "Retry"
"""The reason of attempts whose program asked to be started again, and has seen to it that nothing is lost."""

RESIZED: Final = "Resized"
"""Reason of the attempt that ends because an elastic job is resized, and of the event that its size has changed."""


class PodTimes(NamedTuple):
    """When a pod was created, and when all of its containers ran; in seconds since 1970, as all times here."""

    created: int
    started: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptTimes:
    """An attempt that is to be accounted for."""

    pods: Collection[PodTimes] = ()
    stalled: int | None = None
    """Since when it stands still, as far as that was found."""

    ended: int | None = None
    loses: bool = True
    """Whether its end costs what no checkpoint holds."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a TrainJob."""

    created: int
    now: int
    attempts: Sequence[AttemptTimes] = ()
    """Those that have ended since the last account, and the present one."""

    wanted: int = 0
    """How many pods an attempt has."""

    suspended: int | None = None
    """Since when it is suspended; None: it is not."""

    checkpoint: int | None = None
    progress: int | None = None
    """When it wrote its last checkpoint, and reported its last progress, as far as it told."""

    ended: int | None = None
    has_failed: bool = False


def account(stored: Mapping[str, Any], facts: Facts) -> JsonObject:
    """Bring a goodput up to date.

    Args:
        stored: What was counted so far, as `status.resilience.goodput`; empty: nothing.
    """
    counted = _Account(stored, facts)
    for attempt in facts.attempts:
        counted.start(attempt.pods)
        counted.stall(attempt)
        if attempt.ended is not None:
            counted.fail(attempt.ended, loses=attempt.loses)
    if facts.suspended is not None and counted.phase != QUEUED:
        counted.enter(QUEUED, facts.suspended)
    if facts.ended is not None:
        if facts.has_failed and counted.phase in (PRODUCTIVE, STALLED):
            counted.fail(facts.ended, loses=True)
        counted.enter("", facts.ended)
    return counted.to_json()


class _Account:
    """The seconds so far, and the phase that time is spent on; nothing changes it after the end."""

    def __init__(self, stored: Mapping[str, Any], facts: Facts) -> None:
        self._facts = facts
        self._seconds = {kind: number(stored.get(field)) for kind, field in KINDS.items()}
        self._unsaved = number(stored.get("unsavedSeconds"))
        self._is_estimated = stored.get("estimated") is True
        self.phase = text(stored.get("phase")) if stored else QUEUED
        since = seconds_of(stored.get("since"))
        self._since = facts.created if since is None else since

    def enter(self, phase: str, at: int) -> None:
        """End a phase, and begin another one."""
        if self.phase not in KINDS:
            return
        at = max(at, self._since)
        self._seconds[self.phase] += at - self._since
        if self.phase == PRODUCTIVE:
            self._unsaved = self._unsaved_at(at)
        self.phase, self._since = phase, at

    def _unsaved_at(self, at: int) -> int:
        saved = self._facts.progress if self._facts.checkpoint is None else self._facts.checkpoint
        if saved is None or saved < self._since:
            return self._unsaved + at - self._since
        return max(at - saved, 0)

    def start(self, pods: Collection[PodTimes]) -> None:
        """Note that the pods of an attempt are there, or all run."""
        if self.phase not in (QUEUED, STARTING, RESTARTING):
            return
        if self.phase != RESTARTING:  # pods from before a suspension are of the same attempt
            pods = [each for each in pods if each.created >= self._since]
        if self.phase == QUEUED and pods:
            self.enter(STARTING, min(each.created for each in pods))
        started = [each.started for each in pods if each.started is not None]
        if started and len(started) >= self._facts.wanted:
            self.enter(PRODUCTIVE, max(started))

    def stall(self, attempt: AttemptTimes) -> None:
        """Note that an attempt stands still, or goes on again."""
        if attempt.stalled is not None and self.phase == PRODUCTIVE:
            self.enter(STALLED, attempt.stalled)
        elif attempt.stalled is None and attempt.ended is None and self.phase == STALLED:
            progress = self._facts.progress or 0
            self.enter(PRODUCTIVE, progress if progress > self._since else self._facts.now)

    def fail(self, at: int, *, loses: bool) -> None:
        """End an attempt: what no checkpoint holds is lost."""
        self.enter(RESTARTING, at)
        if loses and self._unsaved:
            lost = min(self._unsaved, self._seconds[PRODUCTIVE])
            self._seconds[PRODUCTIVE] -= lost
            self._seconds[LOST] += lost
            self._is_estimated |= self._facts.checkpoint is None
        self._unsaved = 0

    def to_json(self) -> JsonObject:
        """Return it as the status has it, with what the API server would add to it: else it would be written again."""
        return {
            **{KINDS[kind]: seconds for kind, seconds in self._seconds.items()},
            "unsavedSeconds": self._unsaved if self.phase else 0,
            "estimated": self._is_estimated,
            "phase": self.phase,
            "since": _text(self._since),
        }


def facts_of(job: JsonObject, *, attempts: Sequence[AttemptTimes] = (), wanted: int = 0, now: int) -> Facts:
    """Return what a TrainJob tells, and what is known of its attempts."""
    fields = JobFields(job)
    reported = mapping(fields.status.get("trainerStatus"))
    suspended = mapping(fields.conditions.get(SUSPENDED)).get("lastTransitionTime")
    created = seconds_of(fields.metadata.get("creationTimestamp"))
    return Facts(
        created=now if created is None else created,
        now=now,
        attempts=attempts,
        wanted=wanted,
        suspended=None if fields.outcome else seconds_of(suspended),
        checkpoint=seconds_of(reported.get("lastCheckpointTime")),
        progress=seconds_of(reported.get("lastUpdatedTime")),
        ended=seconds_of(fields.ended),
        has_failed=fields.outcome == FAILED,
    )


def goodput_of(
    job: JsonObject,
    *,
    pods: Iterable[JsonObject] = (),
    jobset: JsonObject | None = None,
    started: str = "",
    now: datetime,
) -> JsonObject:
    """Return what the time of a TrainJob was spent on up to now: as it is kept, or an estimate.

    Args:
        jobset: Its JobSet, if that is known.
        started: When all of it ran first, as far as that was seen.
    """
    facts = facts_of(job, now=int(now.timestamp()))
    stored = mapping(mapping(JobFields(job).status.get("resilience")).get("goodput"))
    if not stored:
        facts = _estimated(facts, job, pods, jobset or {}, started)
    return up_to(account(stored, facts), now)


def _estimated(facts: Facts, job: JsonObject, pods: Iterable[JsonObject], jobset: JsonObject, started: str) -> Facts:
    """Add what is known of the attempts of a TrainJob of which nothing is kept."""
    fields, times = JobFields(job), dict[tuple[int, str], PodTimes]()
    for pod in pods:
        note_pod(times, pod)
    made = fields.began, mapping(jobset.get("metadata")).get("creationTimestamp")
    begun = max(facts.created, *(seconds_of(each) or 0 for each in made))
    if facts.suspended is not None or not (times or started or facts.ended is not None):
        return facts
    if not times:
        return replace(facts, attempts=[AttemptTimes([PodTimes(begun, seconds_of(started) or begun)])])
    of_attempt: dict[int, list[PodTimes]] = {}
    for (attempt, _), each in times.items():
        of_attempt.setdefault(attempt, []).append(each)
    wanted = wanted_pods(job, jobset) or len(of_attempt[max(of_attempt)])
    of_attempt.setdefault(0, [PodTimes(begun, begun)] * wanted)
    pods_of = [known for _, known in sorted(of_attempt.items())]
    ends = [min(each.created for each in known) for known in pods_of[1:]]
    attempts = [AttemptTimes(known, ended=end) for known, end in zip(pods_of, [*ends, None], strict=True)]
    return replace(facts, attempts=attempts, wanted=wanted)


def note_pod(times: dict[tuple[int, str], PodTimes], pod: JsonObject) -> None:
    """Note when a pod was created and ran, by its attempt and its place, in which another one may follow."""
    place = restart_attempt(pod), pod["metadata"]["name"].rpartition("-")[0]
    created, known = seconds_of(pod["metadata"].get("creationTimestamp")), times.get(place, PodTimes(0))
    if created is None or created < known.created or (created == known.created and known.started is not None):
        return
    statuses = mappings(mapping(pod.get("status")).get("containerStatuses"))
    states = [mapping(state) for each in statuses for state in mapping(each.get("state")).values()]
    ran = [each for state in states if (each := seconds_of(state.get("startedAt"))) is not None]
    times[place] = PodTimes(created, max(ran) if ran and len(ran) == len(statuses) else None)


def wanted_pods(job: JsonObject, jobset: JsonObject) -> int:
    """Return how many pods an attempt has; 0: nobody knows."""
    return sum(each.pods for each in JobFields(job).pod_sets(jobset))


def up_to(goodput: JsonObject, now: datetime) -> JsonObject:
    """Return a goodput with the time that has gone by since it was written."""
    field, since = KINDS.get(goodput.get("phase", "")), seconds_of(goodput["since"])
    if field is None or since is None:
        return goodput
    until = max(int(now.timestamp()), since)
    return {**goodput, field: goodput.get(field, 0) + until - since, "since": _text(until)}


def failures_of(job: JsonObject) -> int:
    """Return how many of the attempts that a TrainJob remembers have failed, or were disrupted."""
    attempts = mappings(mapping(JobFields(job).status.get("resilience")).get("attempts"))
    return sum(each.get("reason") not in {RETRY, RESIZED} for each in attempts)


def share_of(goodput: Mapping[str, Any]) -> int | None:
    """Return how many percent of the time of a job were productive; None if no time has gone by."""
    elapsed = sum(number(goodput.get(field)) for field in KINDS.values())
    return round(100 * number(goodput.get(KINDS[PRODUCTIVE])) / elapsed) if elapsed else None


def seconds_of(moment: Any) -> int | None:
    """Read a time in RFC 3339; None if it is none."""
    try:
        return int(parse_time(text(moment)).timestamp())
    except ValueError:
        return None


def _text(moment: int) -> str:
    return time_text(datetime.fromtimestamp(moment, UTC))
