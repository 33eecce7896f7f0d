"""Where the nodes of a job stand, as far as their logs tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from trainmaster.controller.container_failures import is_launcher, log_container, rank_of
from trainmaster.controller.explain.pods import has_succeeded, is_running, started_at, what_it_waits_for
from trainmaster.controller.resilience.log_reader import LogPart, Position
from trainmaster.runtime.jsontree import JsonObject

_GROUPS: Final = 5
"""Of nodes, in a message."""

_REASON: Final = 160
"""Characters of why a log is not known."""


@dataclass(slots=True)
class Member:
    """A pod that trains, or that starts the others, and what is known of its log."""

    number: int | None
    """Of the node; None: it is the launcher."""

    pod: str
    uid: str
    container: str
    waits: str = ""
    """What keeps it from running, if it does not."""

    started: datetime | None = None
    asked_at: datetime | None = None
    read_at: datetime | None = None
    """When its log was read last, to its end at that time."""

    position: Position | None = None
    wrote_at: datetime | None = None
    """When it wrote last; by the clock of its node, but not before it was read the time before."""

    is_whole: bool = False
    """Whether all was read that it has written."""

    is_behind: bool = False
    """Whether it writes faster than is read."""

    error: str = ""
    """Why its log could not be read last."""

    @classmethod
    def of(cls, pod: JsonObject) -> Member | None:
        """Return the member that a pod is; None if it is none: it initializes, for instance."""
        number = rank_of(pod)
        if number is None and not is_launcher(pod):
            return None
        member = cls(number, pod["metadata"]["name"], pod["metadata"]["uid"], log_container(pod))
        member.see(pod)
        return member

    def see(self, pod: JsonObject) -> None:
        """Take note of the state of the pod."""
        self.waits = "" if is_running(pod) or has_succeeded(pod) else what_it_waits_for(pod)
        self.started = self.started or started_at(pod)

    @property
    def who(self) -> str:
        """What it is called."""
        return "the launcher" if self.number is None else f"node {self.number}"

    @property
    def order(self) -> int:
        """Sorts members: the launcher, which has the log of all ranks, is first."""
        return -1 if self.number is None else self.number

    def is_read_since(self, moment: datetime) -> bool:
        """Return whether all is known that it has written up to a moment."""
        return self.read_at is not None and self.read_at >= moment

    def take(self, part: LogPart, asked_at: datetime, now: datetime, *, is_scanned: bool) -> list[tuple[datetime, str]]:
        """Take note of a part of the log; return the lines with the times that count for them."""
        begins = self.position is None and is_scanned
        self.is_whole = not part.is_cut and not self.is_behind and (begins or self.is_whole)
        # What is new was written since the last look, whatever the clock of the node says.
        floor = self.read_at or self.started or asked_at
        lines = [(min(max(at, floor), now), text) for at, text in part.lines]
        if lines:
            self.wrote_at = lines[-1][0]
        self.position, self.is_behind, self.error = part.position, part.is_cut, ""
        if not part.is_cut:
            self.read_at = asked_at
        return lines


def standing(members: Sequence[Member], now: datetime, *, since: datetime) -> str:
    """Say when which member wrote last, the longest silent first, and of which that is not known."""
    groups: dict[str, list[Member]] = {}
    for member in sorted(members, key=lambda each: each.wrote_at or datetime.min.replace(tzinfo=now.tzinfo)):
        groups.setdefault(_state(member, now, since), []).append(member)
    told = [f"{named(each)} {state}" for state, each in groups.items()]
    more = f"; and {len(told) - _GROUPS} more" if len(told) > _GROUPS else ""
    return "; ".join(told[:_GROUPS]) + more


def _state(member: Member, now: datetime, since: datetime) -> str:
    if member.waits:
        return f"does not run: {member.waits[:_REASON]}"
    if member.is_read_since(since):
        return f"wrote last {ago(now - member.wrote_at)} ago" if member.wrote_at else "wrote nothing"
    return f"not known: {member.error[:_REASON]}" if member.error else "not asked"


def named(members: Iterable[Member]) -> str:
    """Name some members: `nodes 0, 1 and 3`."""
    names = [each.who for each in members]
    if len(names) == 1 or "the launcher" in names:
        return " and ".join(names)
    numbers = [name.removeprefix("node ") for name in names]
    return f"nodes {', '.join(numbers[:-1])} and {numbers[-1]}"


def ago(time: timedelta) -> str:
    """Say how long something takes, in its largest unit that fits twice."""
    seconds = max(time.total_seconds(), 0.0)
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
