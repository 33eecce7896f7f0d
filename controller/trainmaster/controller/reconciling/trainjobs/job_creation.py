"""Whether the Jobs of a JobSet are refused: JobSet's controller says that in an event of the JobSet, and nowhere else.

Guarantees:
- Only events of JobSets that lack Jobs, and whose Jobs may be refused for something that can be seen in the JobSet, are
  asked for: what is fine costs no request.
- Looks are few: the first comes a few seconds after the JobSet was seen, each further one after twice the time, and
  those of all TrainJobs together are so many a second. Permission to read events is no necessity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import structlog

from trainmaster.controller.condition_types import JOB_CREATION_FAILED
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.reconciling.conditions import is_true, stored_status
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_COMPLETED, JOBSET_FAILED, JOBSET_KIND
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

log = structlog.get_logger(__name__)

CORE_EVENTS: Final = Resource("", "v1", "Event", "events", namespaced=True)


def policy_rules(watches: Iterable[Watch]) -> Iterator[PolicyRule]:
    """Return the rights that it takes where JobSets are built."""
    if any((watch.api_version, watch.kind) == (JOBSET_API_VERSION, JOBSET_KIND) for watch in watches if watch.writes):
        yield PolicyRule(
            resource=CORE_EVENTS,
            verbs=("list",),
            needed_by="trainjob_controller",
            reason="find out why a JobSet has no Jobs: its controller says that in an event and nowhere else",
        )


FIRST_LOOK: Final = 5.0
LONGEST_INTERVAL: Final = 300.0
"""Seconds; JobSet's controller itself tries again after up to 17 minutes."""

_BETWEEN_LOOKS: Final = 0.2
_STALE: Final = timedelta(minutes=20)
"""Age from which an event says nothing any more: the controller has been trying again since."""

_MOST_EVENTS: Final = 20  # of one JobSet that are read
_COUNTS: Final = ("ready", "succeeded", "failed", "active", "suspended")


def without_jobs(jobset: JsonObject) -> set[str]:
    """The ReplicatedJobs of a JobSet that has not ended of whose Jobs its status counts none."""
    status = stored_status(jobset)
    conditions = status["conditions"]
    if is_true(conditions, JOBSET_COMPLETED) or is_true(conditions, JOBSET_FAILED):
        return set()
    counts = _by_name(status.get("replicatedJobsStatus"))
    counted = {name for name, each in counts.items() if any(each.get(count) for count in _COUNTS)}
    spec = jobset.get("spec")
    return _by_name(spec.get("replicatedJobs") if isinstance(spec, dict) else None).keys() - counted


def _by_name(entries: Any) -> dict[str, JsonObject]:
    """Return what has a name in a list that may hold anything: a JobSet is not always one."""
    listed = entries if isinstance(entries, list) else []
    return {each["name"]: each for each in listed if isinstance(each, dict) and isinstance(each.get("name"), str)}


class EventReader(Protocol):
    """Reads events from the server."""

    async def list(
        self, resource: Resource, namespace: str | None, *, field_selector: str | None, limit: int | None
    ) -> JsonObject:
        """Read a collection; raises errors of the client."""


class JobCreation:
    """Asks why JobSets have no Jobs; remembers, by key of the TrainJob, what it found and when it is to look again.

    Args:
        client: Whom it asks.
        clock: The time.
    """

    def __init__(self, client: EventReader, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._looks: dict[str, _Look] = {}
        self._next_turn = 0.0
        """When somebody who is due may look next."""

    async def look(self, key: str, jobset: JsonObject) -> tuple[Problem | None, float]:
        """Say why a JobSet without Jobs has none, if that is known, and in how many seconds to ask again."""
        uid, now = jobset["metadata"]["uid"], self._clock.monotonic()
        look = self._looks.get(key)
        if look is None or look.uid != uid:
            look = self._looks[key] = _Look(uid, due=now + FIRST_LOOK)
        if now >= look.due and not look.has_turn:
            look.due = max(now, self._next_turn)
            self._next_turn = look.due + _BETWEEN_LOOKS
            look.has_turn = True
        if now >= look.due:
            look.problem = await self._find(jobset, known=look.problem)
            look.interval = min(2 * look.interval, LONGEST_INTERVAL)
            look.due = now + look.interval
            look.has_turn = False
        return look.problem, look.due - now

    def forget(self, key: str) -> None:
        """Drop everything about a key."""
        self._looks.pop(key, None)

    async def _find(self, jobset: JsonObject, *, known: Problem | None) -> Problem | None:
        metadata = jobset["metadata"]
        selector = f"involvedObject.uid={metadata['uid']},reason={JOB_CREATION_FAILED}"
        try:
            found = await self._client.list(
                CORE_EVENTS, metadata["namespace"], field_selector=selector, limit=_MOST_EVENTS
            )
        except KubeError as error:
            write = log.debug if isinstance(error, Forbidden) and error.told else log.info
            write("events of a JobSet that has no Jobs could not be read", jobset=metadata["name"], error=str(error))
            return known
        events = [event for event in found.get("items") or () if self._clock.now() - _last_seen(event) < _STALE]
        for event in sorted(events, key=_last_seen, reverse=True):
            if _is_about(str(event.get("message")), jobset):
                text = f'the Jobs of JobSet "{metadata["name"]}" are refused: {event.get("message")}'
                return Problem(JOB_CREATION_FAILED, text, retry=False)
        return None


@dataclass(slots=True)
class _Look:
    """What is known of one JobSet."""

    uid: str
    due: float
    interval: float = FIRST_LOOK
    has_turn: bool = False
    problem: Problem | None = None


def _is_about(message: str, jobset: JsonObject) -> bool:
    """Whether an event is about Jobs that are still not there: of those that are, there may be older events."""
    if not stored_status(jobset).get("replicatedJobsStatus"):
        return True  # the controller has not got over its first Job
    return any(f"{jobset['metadata']['name']}-{name}-" in message for name in without_jobs(jobset))


def _last_seen(event: JsonObject) -> datetime:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    stamp = next((time for time in times if time), None) or event["metadata"].get("creationTimestamp")
    try:
        return datetime.fromisoformat(str(stamp)).astimezone(UTC)
    except (OverflowError, ValueError):
        return datetime.min.replace(tzinfo=UTC)
