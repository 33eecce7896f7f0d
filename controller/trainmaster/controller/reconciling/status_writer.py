"""The status writer: what the owner of a job reads after a reconcile: the status, in one patch, and the events of it.

Guarantees:
- C-11, C-12: the status goes through the status subresource, and an equal status means no request.
- C-9, C-10: the patch carries UID and resource version of what was read; after a conflict everything is read again.
- A change that concerns nothing but counters waits up to `COUNTERS_INTERVAL`, so that a job whose pods come up one by
  one costs one write and not one for each pod. Whatever else changes is written at once, together with the newest
  counters. What waits is never lost: the caller looks again when it is due.
- A field that the installed definition lacks is written once by a process, and not again.
- A status that somebody keeps undoing is written less often (see `write_backoff`).
- The events of a status that was written are recorded at least once, also if the answer to the write was lost.
- An unchanged problem is reported once. In other words it is reported again: at once if the earlier ones were found
  twice, else after `REPORT_INTERVAL`. So words that differ on every try are not written on every try.
- F-8: nothing waits for an event, and nothing is decided from one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, final

import structlog

from trainmaster.controller.conditions import stored_status
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.clock import Clock, time_text
from trainmaster.controller.kube.events.recorder import Recorder
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Conflict, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.expectations import Expectations
from trainmaster.controller.reconciling.problems import EVENT_ACTION, REPORT_INTERVAL, Problem
from trainmaster.controller.reconciling.write_backoff import WriteBackoff, find_field_conflict, report_conflict
from trainmaster.controller.reconciling.writes import Decision, JobEvent
from trainmaster.runtime.api.constants import FIELD_MANAGER
from trainmaster.runtime.jsontree import JsonObject

log = structlog.get_logger(__name__)

COUNTERS_INTERVAL: Final = 1.0

_STATUS: Final = "the status"
_TIMES: Final = frozenset({"lastTransitionTime", "lastUpdateTime"})

Decided = TypeVar("Decided", bound=Decision)
Path: TypeAlias = tuple[str, ...]


class Written(NamedTuple):
    """What the owner of a job reads from now on: its status, or None, and the seconds until that is due."""

    status: JsonObject | None
    due: float | None
    problem: Problem | None
    reword: float | None
    """Seconds until the problem is to be told in other words."""


class _Unanswered(NamedTuple, Generic[Decided]):
    """A status that may be written, since no answer says that it is not."""

    raw: JsonObject
    """The job before."""

    status: JsonObject
    decided: Decided


@dataclass(slots=True)
class _Report:
    """A problem that was reported."""

    uid: str
    problem: Problem
    at: float
    is_steady: bool = False
    """Whether it was found again in the same words."""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class StatusWriter(Generic[Decided]):
    """Writes the statuses of the jobs of one kind, which `resource` names, and records their events."""

    client: KubeClient
    resource: Resource
    jobs: Store
    only_counters: Callable[[JsonObject, JsonObject], bool]
    """Tells of two statuses whether they differ in nothing but counters."""

    expectations: Expectations
    write_backoff: WriteBackoff
    recorder: Recorder
    clock: Clock
    _log: Any = field(default_factory=log.bind)
    """Bound once: each call of one that is not bound binds it."""

    _unknown: set[Path] = field(default_factory=set)
    """Fields that the server dropped: the installed definition, the original's or an older one, does not have them."""

    _due: dict[str, float] = field(default_factory=dict)
    """When counters that are not written yet have to be, by key."""

    _unanswered_statuses: dict[str, _Unanswered[Decided]] = field(default_factory=dict)
    _reports: dict[str, _Report] = field(default_factory=dict)
    """By key: the problem that was reported last."""

    async def write(self, key: str, raw: JsonObject, decided: Decided, problem: Problem | None) -> Written:
        """Write the status that follows from a decision, given what stands in the way, and record what has happened."""
        problem, reword = self._keep_wording(key, raw, problem)
        status = decided.status(problem, now=time_text(self.clock.now()))
        try:
            due = await self._patch(key, raw, status)
        except Conflict:
            raise  # this one was not written, but perhaps the one before
        except KubeError:
            self._unanswered_statuses[key] = _Unanswered(raw, status, decided)
            raise
        self._unanswered_statuses.pop(key, None)
        self.report(key, raw, problem)
        self.record(raw, decided.events)
        if due is None:
            self.record(raw, decided.status_events)
        return Written(status if due is None else None, due, problem, reword)

    async def write_unreadable(
        self, key: str, raw: JsonObject, problem: Problem, status_of: Callable[[JsonObject, Problem], JsonObject | None]
    ) -> Written:
        """Write why a job cannot be worked on; the status of one that has ended stays as it is."""
        problem = self._keep_wording(key, raw, problem)[0] or problem
        status = status_of(raw, problem)
        due = None if status is None else await self._patch(key, raw, status)
        self.report(key, raw, problem)
        return Written(status, due, problem, None)

    def settle_unanswered(self, key: str, raw: JsonObject) -> tuple[Decided, JsonObject] | None:
        """Record the events of a status whose write had no answer, once the job shows it; return it, decision first."""
        last = self._unanswered_statuses.get(key)
        if last is None or raw["metadata"]["resourceVersion"] == last.raw["metadata"]["resourceVersion"]:
            return None
        del self._unanswered_statuses[key]
        # Others may have written into the status since, but no condition of ours.
        is_there = stored_status(raw)["conditions"] == (last.status.get("conditions") or [])
        if raw["metadata"]["uid"] != last.raw["metadata"]["uid"] or not is_there:
            return None
        self.record(raw, [*last.decided.events, *last.decided.status_events])
        return last.decided, last.status

    def report(self, key: str, raw: JsonObject, problem: Problem | None) -> None:
        """Report a problem as an event and a log line, unless it was reported; None: there is none any more."""
        if problem is None:
            self._reports.pop(key, None)
            return
        uid, kind = raw["metadata"]["uid"], self.resource.kind
        last = self._reports.get(key)
        if last is not None and (last.uid, last.problem) == (uid, problem):
            return
        self._reports[key] = _Report(uid, problem, self.clock.monotonic())
        log.warning("the job is blocked", kind=kind, reason=problem.reason, message=problem.message)
        self.record(raw, [JobEvent(f"{kind}ResourcesCreationFailed", problem.event_note(kind), "Warning")])

    def record(self, raw: JsonObject, events: Iterable[JobEvent]) -> None:
        """Record events of a job."""
        for each in events:
            self.recorder.event(raw, type=each.type, reason=each.reason, action=EVENT_ACTION, note=each.note)

    def schedule_counters(self, key: str) -> float:
        """Have counters of a key written when it is their time; return the seconds until then."""
        now = self.clock.monotonic()
        return max(self._due.setdefault(key, now + COUNTERS_INTERVAL) - now, 0.0)

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._due.pop(key, None)
        self._unanswered_statuses.pop(key, None)
        self._reports.pop(key, None)

    def _keep_wording(self, key: str, raw: JsonObject, problem: Problem | None) -> tuple[Problem | None, float | None]:
        """Return the problem, in its earlier words if those have to do for a while, and the seconds until then."""
        last = self._reports.get(key)
        if problem is None or last is None or last.uid != raw["metadata"]["uid"]:
            return problem, None
        last.is_steady = last.is_steady or last.problem == problem
        left = last.at + REPORT_INTERVAL - self.clock.monotonic()
        if last.is_steady or left <= 0 or last.problem.reason != problem.reason:
            return problem, None
        return last.problem, left

    async def _patch(self, key: str, raw: JsonObject, new: JsonObject) -> float | None:
        """Bring the status of the object `raw` to `new`; if that has to wait, return the seconds until it is due."""
        new = _without(new, self._unknown) if self._unknown else new
        stored = raw.get("status")
        old = stored if isinstance(stored, dict) else {}
        patch = status_patch(old, new)
        if patch is None:
            self._due.pop(key, None)
            return None
        if self.only_counters(old, new) and (seconds := self.schedule_counters(key)):
            return seconds
        content = without_times(new)
        metadata = raw["metadata"]
        delay = self.write_backoff.delay(metadata["uid"], _STATUS, content)
        if delay is not None:
            if delay.first:
                wanted = {"metadata": {name: metadata[name] for name in ("namespace", "name")}, "status": content}
                ours: JsonObject = {"f:status": {f"f:{field}": {} for field in content}}
                found = await find_field_conflict(self.client, self.resource, wanted, owned_fields=ours)
                report_conflict(found, self.recorder, raw, self.resource.kind, _STATUS)
            return delay.seconds
        patch["metadata"] = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        try:
            status, version = await self.client.patch_status(
                self.resource, metadata["namespace"], metadata["name"], patch, field_manager=FIELD_MANAGER
            )
        except NotFound:
            return None
        self._due.pop(key, None)
        if unknown := set(_lacking(status or {}, new)):
            self._unknown |= unknown
            fields = sorted(map(".".join, unknown))
            self._log.warning("the installed definition lacks fields of the status", fields=fields)
        holding = [c["type"] for c in new.get("conditions") or [] if c.get("status") == "True"]
        self._log.debug("status changed", conditions=holding)
        written = {**raw, "metadata": {**metadata, "resourceVersion": version}}
        self.expectations.expect_write(key, written, self.jobs, own=True, foreseen=status == new)
        self.write_backoff.record_write(metadata["uid"], _STATUS, content)
        return None


def status_patch(old: JsonObject, new: JsonObject) -> JsonObject | None:
    """Build the JSON merge patch that turns one status into another; None when there is nothing to change.

    An empty status is removed as a whole: the schema demands at least one property in a status that is present.
    """
    if old == new:
        return None
    if not new:
        return {"status": None}
    return {"status": _merge_patch(old, new)}


def _merge_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    patch: JsonObject = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if value != before:
                patch[key] = _merge_patch(before, value)
        elif key not in old or value != before:
            patch[key] = value
    return patch


def _lacking(stored: JsonObject, wanted: JsonObject, *path: str) -> Iterator[Path]:
    """Yield the fields that are wanted, and are not in what was stored."""
    for name, value in wanted.items():
        if name not in stored:
            yield (*path, name)
        elif isinstance(value, dict) and isinstance(stored[name], dict):
            yield from _lacking(stored[name], value, *path, name)


def _without(status: JsonObject, fields: Collection[Path], *path: str) -> JsonObject:
    """Return a status without some fields."""
    return {
        name: _without(value, fields, *path, name) if isinstance(value, dict) else value
        for name, value in status.items()
        if (*path, name) not in fields
    }


def without_times(status: JsonObject) -> JsonObject:
    """Return a status without the times of its conditions: what it says, not since when."""
    conditions = [
        {name: value for name, value in condition.items() if name not in _TIMES}
        for condition in status.get("conditions") or []
    ]
    return {**status, "conditions": conditions}
