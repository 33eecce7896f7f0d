"""What is known of one attempt: its progress, its log, its world; and when that breaks the policy. Pure.

Guarantees:
- Progress is what the training reports to the status server, else the numbers that log rules capture, else lines that
  its nodes write: the best of these that has told anything in this attempt counts alone.
- A deadline has passed when the time is over and the logs that count have been read since. What could not be read, or
  was skipped, is not missed. So nothing follows from the time for which the manager was away.
- An attempt begins when its first pod is created: `progress.start` counts from then. Everything else counts from when
  all pods run. Both tell pods, so a manager that takes over knows them.
- Of each rule, and of progress and the world, one violation is found in an attempt; of progress another one if the
  training went on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import partial
from typing import Final, NamedTuple

from trainmaster.controller.explain.findings import parse_time
from trainmaster.controller.explain.pods import pods_at_once
from trainmaster.controller.job_fields import mapping
from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.resilience.ledger import Violation
from trainmaster.controller.resilience.log_reader import TAIL, LogPart, LogUnread
from trainmaster.controller.resilience.log_rules import RuleState, seconds
from trainmaster.controller.resilience.standing import Member, ago, standing
from trainmaster.controller.resilience.world import World, asked_for, mismatch, told_by
from trainmaster.runtime.api.constants import (
    LAUNCHER,
    LOG_RULE_BROKEN_REASON,
    NO_PROGRESS_REASON,
    NODE,
    WORLD_SIZE_MISMATCH_REASON,
)
from trainmaster.runtime.api.resilience import EVENT, FAIL, VERIFY, WARN, ResiliencePolicy
from trainmaster.runtime.jsontree import JsonObject

SHORTEST, LONGEST, USUAL = timedelta(seconds=5), timedelta(seconds=60), timedelta(seconds=15)
"""Between two reads of logs; the last one for a policy without limits of time."""

BETWEEN: Final = timedelta(seconds=1)
"""Between two reads once a deadline has passed."""

TURN: Final = 200
"""Lines that are looked at in a row: 16 rules take some 6 ms for them."""

MOST_ASKED: Final = 16
"""Nodes whose logs are read for a message alone."""

WORLD_TOLD: Final = timedelta(minutes=10)
"""For how long after all pods run the size of the world is looked for in the log."""


class Source(IntEnum):
    """What tells of progress, the best last."""

    LINES = 1
    NUMBERS = 2
    REPORTS = 3


class _Deadline(NamedTuple):
    at: datetime
    members: Sequence[Member]
    """Whose logs are read when it has passed."""

    is_read: bool
    """Whether that has been done, as far as it has to be."""

    miss: Callable[[], None]
    """Takes note that it was missed."""


def watches(policy: ResiliencePolicy) -> bool:
    """Return whether a policy asks for anything of this."""
    progress = policy.progress
    return bool(
        (progress and (progress.within or progress.start)) or policy.logs or policy.world_size in (VERIFY, WARN)
    )


class Attempt:
    """What is known of one attempt of a job.

    Raises:
        ValueError: A pattern or a duration of the policy is none.
    """

    def __init__(self, policy: ResiliencePolicy, told: Iterable[Violation] = ()) -> None:
        self.rules = [RuleState(each) for each in policy.logs or ()]
        self.members: list[Member] = []
        self.told = {(each.reason, each.rule): each for each in told}
        """Violations, by their reasons and rules."""

        self.found: list[Violation] = []
        """New ones, in their order; who tells of them takes them from here."""

        self.source: Source | None = None
        self.progress_at: datetime | None = None
        self._policy = policy
        self._within = seconds(policy.progress.within) if policy.progress else None
        self._start = seconds(policy.progress.start) if policy.progress else None
        limits = [self._within, self._start, *(limit for each in self.rules for limit in each.limits)]
        shortest = min((each for each in limits if each is not None), default=4 * USUAL)
        self._interval = min(max(shortest / 4, SHORTEST), LONGEST)
        self._wanted = 0
        self._begun: datetime | None = None
        self._running_since: datetime | None = None
        self._writer: Member | None = None
        self._asked_at: datetime | None = None
        self._reported: tuple[str, datetime] | None = None
        """The time in the last report, and when that was looked at last."""

        self._world: World | None = None
        self._seeks_world = policy.world_size in (VERIFY, WARN) and (WORLD_SIZE_MISMATCH_REASON, "") not in self.told
        for each in self.told.values():
            self.progress_at = self.progress_at or parse_time(each.since)
            for rule in self.rules:
                rule.broken = each.message if rule.rule.name == each.rule else rule.broken

    # What comes in

    @property
    def all_run(self) -> bool:
        """Whether all pods have run."""
        return self._running_since is not None

    def see_pods(self, pods: Iterable[JsonObject], jobset: JsonObject, now: datetime) -> None:
        """Take note of the pods of the attempt."""
        known = {each.uid: each for each in self.members}
        members, created = [], []
        for pod in pods:
            member = known.get(pod["metadata"]["uid"]) or Member.of(pod)
            if member is not None:
                member.see(pod)
                members.append(member)
                created.append(parse_time(pod["metadata"].get("creationTimestamp")) or now)
                if self._world is None and member.number is not None:
                    containers = pod["spec"]["containers"]
                    trains = next(each for each in containers if each["name"] == member.container)
                    self._world = asked_for(trains, _pods_of(jobset, NODE))
        self.members = sorted(members, key=lambda each: each.order)
        self._begun = self._begun or min(created, default=None)
        self._wanted = _pods_of(jobset, NODE) + _pods_of(jobset, LAUNCHER)
        if len(members) >= self._wanted > 0 and self._running_since is None and not any(each.waits for each in members):
            self._running_since = max((each.started for each in members if each.started), default=now)

    def take_report(self, trainjob: JsonObject, now: datetime) -> None:
        """Take note of what the training has reported last."""
        if self._begun is None:
            return
        report = mapping(mapping(trainjob.get("status")).get("trainerStatus"))
        reported, (before, looked_at) = str(report.get("lastUpdatedTime") or ""), self._reported or ("", None)
        self._reported = reported, now
        at = parse_time(reported)
        if at is None or reported == before or (looked_at is None and at < self._begun):
            return  # nothing new, or of another attempt
        if report.keys() - {"lastUpdatedTime", "worldSize"}:
            # It came since the last look, whatever the clock of its node says.
            self._note_progress(Source.REPORTS, min(max(at, looked_at or at), now))
        if isinstance(size := report.get("worldSize"), int):
            self._take_world(size, "the training")

    def next_read(self, now: datetime) -> Member | None:
        """Return whose log is to be read now; None: nobody's."""
        for deadline in self._deadlines(now):
            for each in self._unasked(deadline, now):
                return each if self._asked_at is None or now >= self._asked_at + BETWEEN else None
        if not self._reads_logs(now) or (self._asked_at is not None and now < self._asked_at + self._interval):
            return None
        running = [each for each in self.members if not each.waits]
        by_lines = _STANDS_STILL in self.told and self.source in (None, Source.LINES)
        if by_lines or any(each.is_of_all and each.is_needed for each in self.rules):
            return min(running, key=lambda each: each.asked_at or datetime.min.replace(tzinfo=UTC), default=None)
        if self._writer in running and not self.is_scanned(self.members[0], now):
            return self._writer
        return next(iter(running), None)

    def is_scanned(self, member: Member, now: datetime) -> bool:
        """Return whether each line of a log counts; otherwise the last one is enough."""
        is_first = member is self.members[0]
        if is_first and self._is_world_sought(now):
            return True
        return any(each.is_needed and (each.is_of_all or is_first) for each in self.rules)

    def tail(self, member: Member, now: datetime) -> int | None:
        """Return how many lines of a log are enough."""
        return (TAIL if member.is_behind else None) if self.is_scanned(member, now) else 1

    def take_log(self, member: Member, part: LogPart | LogUnread, asked_at: datetime, now: datetime) -> Iterator[None]:
        """Take note of what a read has brought; yields after some lines each, since there may be many."""
        self._asked_at = member.asked_at = asked_at
        if isinstance(part, LogUnread):
            member.error = str(part)
            return
        is_scanned = self.is_scanned(member, asked_at)
        for number, (at, line) in enumerate(member.take(part, asked_at, now, is_scanned=is_scanned)):
            if number % TURN == TURN - 1:
                yield
            self._note_progress(Source.LINES, at, member)
            if is_scanned:
                self._take_line(member, line, at)

    def _take_line(self, member: Member, line: str, at: datetime) -> None:
        is_first = member is self.members[0]
        for rule in self.rules:
            if (is_first or rule.is_of_all) and rule.take(line, at, member.who):
                self._note_progress(Source.NUMBERS, at, member)
        if is_first and self._world is not None and (told := told_by(line)) is not None:
            self._take_world(*told)

    def _note_progress(self, source: Source, at: datetime, writer: Member | None = None) -> None:
        if self.source is None or source >= self.source:
            self.source, self._writer = source, writer
            self.progress_at = max(at, self.progress_at or at, self._running_since or at)
            stall = self.told.get(_STANDS_STILL)
            if stall is not None and stall.action == EVENT and time_text(at) > stall.since:
                del self.told[_STANDS_STILL]

    def _take_world(self, size: int, who: str) -> None:
        self._seeks_world = False
        if self._policy.world_size in (VERIFY, WARN) and self._world is not None and self._world.lacks(size):
            action = FAIL if self._policy.world_size == VERIFY else EVENT
            self._find(WORLD_SIZE_MISMATCH_REASON, mismatch(self._world, size, who), action)

    # What follows from it

    def judge(self, now: datetime) -> None:
        """Find what breaks the policy by now."""
        for deadline in self._deadlines(now):
            if deadline.at <= now and deadline.is_read:
                deadline.miss()
        for each in self.rules:
            if each.broken:
                name = each.rule.name
                self._find(LOG_RULE_BROKEN_REASON, f"log rule {name}: {each.broken}", each.rule.action, rule=name)

    def due(self, now: datetime) -> timedelta:
        """Return in which time something is to be looked at again."""
        dues = [now + (LONGEST if self.all_run else self._interval)]
        if self._reads_logs(now):
            dues.append((self._asked_at or now) + self._interval)
        for deadline in self._deadlines(now):
            waits = deadline.at <= now and not any(self._unasked(deadline, now))
            dues.append(now + self._interval if waits else deadline.at)
        return max(min(dues) - now, BETWEEN)

    def _find(self, reason: str, message: str, action: str, *, rule: str = "", since: str = "") -> None:
        if (reason, rule) not in self.told:
            self.told[reason, rule] = Violation(reason, message, action, since, rule)
            self.found.append(self.told[reason, rule])

    def _is_world_sought(self, now: datetime) -> bool:
        return self._seeks_world and self._running_since is not None and now < self._running_since + WORLD_TOLD

    def _reads_logs(self, now: datetime) -> bool:
        """Return whether logs are read before any deadline has passed."""
        by_lines = self._within is not None or (self._start is not None and self.progress_at is None)
        by_lines &= self.source is not Source.REPORTS
        return self.all_run and (by_lines or self._is_world_sought(now) or any(each.is_needed for each in self.rules))

    def _unasked(self, deadline: _Deadline, now: datetime) -> Iterator[Member]:
        """Yield those whose logs are to be read for a deadline; who has not answered is asked again some time."""
        since = max(deadline.at, now - self._interval)
        for each in deadline.members if deadline.at <= now and not deadline.is_read else ():
            if not each.is_read_since(deadline.at) and (each.asked_at is None or each.asked_at < since):
                yield each

    def _deadlines(self, now: datetime) -> Iterator[_Deadline]:
        at = self._progress_due()
        if at is not None and _STANDS_STILL not in self.told:
            yield self._progress_deadline(at, now)
        for rule in self.rules:
            members = self.members if rule.is_of_all else self.members[:1]
            is_whole = all(each.is_whole for each in members)
            at = rule.deadline(running_since=self._running_since, is_whole=is_whole)
            if at is not None and members:
                yield _Deadline(at, members, all(each.is_read_since(at) for each in members), rule.miss)

    def _progress_deadline(self, at: datetime, now: datetime) -> _Deadline:
        miss = partial(self._miss_progress, at, now)
        if not self.all_run:
            return _Deadline(at, (), True, miss)
        running = [each for each in self.members if not each.waits]
        members = running if self.source in (None, Source.LINES) else running[:MOST_ASKED]
        is_read = all(each.asked_at is not None and each.asked_at >= at for each in members)
        if self.source is not Source.REPORTS:
            # By a log that could not be read nothing stands still, least of all by that of who wrote last.
            others = self.members[:1] if self.source is Source.NUMBERS else members
            counts = [self._writer] if self._writer in self.members else others
            is_read &= any(each.is_read_since(at) for each in counts)
        return _Deadline(at, members, is_read, miss)

    def _progress_due(self) -> datetime | None:
        if self.progress_at is not None:
            return self.progress_at + self._within if self._within else None
        if self._start is not None:
            return self._begun + self._start if self._begun else None
        return self._running_since + self._within if self._within and self._running_since else None

    def _miss_progress(self, at: datetime, now: datetime) -> None:
        progress = self._policy.progress
        if progress is None:
            return
        if self.progress_at is not None:
            text = f"no progress for {ago(now - self.progress_at)}, by {_TEXTS[self.source or Source.LINES]}"
        elif not self.all_run:
            text = f"not all pods ran {progress.start} after the first of them was created"
        else:
            text = f"no progress within {progress.start or progress.within} after its start"
        missing = f"; {self._wanted - len(self.members)} pods do not exist" if len(self.members) < self._wanted else ""
        there = self.members if self.all_run else [each for each in self.members if each.waits]
        told = f"{standing(there, now, since=at)}{missing}".removeprefix("; ")
        since = time_text(self.progress_at) if self.progress_at is not None else ""
        self._find(NO_PROGRESS_REASON, f"{text}: {told}", progress.action, since=since)


_STANDS_STILL: Final = NO_PROGRESS_REASON, ""
_TEXTS: Final = {
    Source.LINES: "what its nodes write",
    Source.NUMBERS: "the numbers in its log",
    Source.REPORTS: "what it reports",
}


def _pods_of(jobset: JsonObject, name: str) -> int:
    """Return how many pods the ReplicatedJob of that name has."""
    jobs = (jobset.get("spec") or {}).get("replicatedJobs") or ()
    return next((pods_at_once(each) for each in jobs if each["name"] == name), 0)
