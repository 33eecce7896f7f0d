"""What controllers say in events, and nowhere else: that the Jobs of a JobSet, or their pods, are refused.

Permission to read events is no necessity. JobSet's controller tells why it cannot make a Job, the Job controller why it
cannot make pods: a quota or a webhook may refuse them, for instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from trainmaster.controller.condition_types import JOB_CREATION_FAILED
from trainmaster.controller.conditions import stored_status
from trainmaster.controller.diagnosis.counts import without_jobs
from trainmaster.controller.diagnosis.pods import Reader
from trainmaster.controller.explain.event import Event, parse_event
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND
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


_STALE: Final = timedelta(minutes=20)
"""Age from which an event says nothing any more: the controller has been trying again since."""

_MOST_EVENTS: Final = 20  # that are read at once
_TIME_LIMIT: Final = 3.0
_NO_POD: Final = "FailedCreate"
"""By which the Job controller tells that it cannot make a pod."""


async def read_refused_jobs(client: Reader, clock: Clock, jobset: JsonObject, *, known: str | None) -> str | None:
    """Return why a JobSet without Jobs has none; what is `known` of that if nobody says, None if nothing is wrong."""
    metadata = jobset["metadata"]
    selector = f"involvedObject.uid={metadata['uid']},reason={JOB_CREATION_FAILED}"
    try:
        async with clock.timeout(_TIME_LIMIT):
            found = await client.list(CORE_EVENTS, metadata["namespace"], field_selector=selector, limit=_MOST_EVENTS)
    except (KubeError, TimeoutError) as error:
        _log_unread("events of a JobSet that has no Jobs could not be read", metadata["name"], error)
        return known
    events = [event for event in found.get("items") or () if clock.now() - _last_seen(event) < _STALE]
    for event in sorted(events, key=_last_seen, reverse=True):
        if _is_about(str(event.get("message")), jobset):
            return f'the Jobs of JobSet "{metadata["name"]}" are refused: {event.get("message")}'
    return None


async def read_refused_pods(client: Reader, clock: Clock, jobset: JsonObject) -> list[Event] | None:
    """Return the events about the first Job of each ReplicatedJob of a JobSet; None if nobody says."""
    namespace, name = jobset["metadata"]["namespace"], jobset["metadata"]["name"]
    found: list[Event] = []
    try:
        async with clock.timeout(_TIME_LIMIT):
            for replicated_job in (jobset.get("spec") or {}).get("replicatedJobs") or ():
                job = f"{name}-{replicated_job['name']}-0"
                selector = f"involvedObject.kind=Job,involvedObject.name={job},reason={_NO_POD}"
                page = await client.list(CORE_EVENTS, namespace, field_selector=selector, limit=_MOST_EVENTS)
                found += [parse_event(each) for each in page.get("items") or ()]
    except (KubeError, TimeoutError) as error:
        _log_unread("events of Jobs that have no pods could not be read", name, error)
        return None
    return found


def _log_unread(what: str, jobset: str, error: Exception) -> None:
    write = log.debug if isinstance(error, Forbidden) and error.told else log.info
    write(what, jobset=jobset, error=str(error))


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
