"""Reads the pods of one JobSet, and the events about Jobs and pods that controllers cannot create.

Guarantees:
- Reads are bounded: `MOST_PODS` pods in pages, `MOST_EVENTS` events for each selector, within `TIME_LIMIT` seconds.
- A read that fails raises `Unread`, whatever the reason, and is logged.

Permission to read events is no necessity. JobSet's controller says in an event, and nowhere else, why it cannot create
a Job; the Job controller why it cannot create pods. A quota or a webhook may refuse them, for instance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

import structlog

from trainmaster.controller.conditions import JOB_CREATION_FAILED, stored_status
from trainmaster.controller.container_failures import JOBSET_UID_LABEL, ContainerFailure, container_failures
from trainmaster.controller.diagnosis.counts import without_jobs
from trainmaster.controller.diagnosis.waiting import kept
from trainmaster.controller.explain.findings import Event, parse_event
from trainmaster.controller.explain.pods import is_of_jobset, is_running, places
from trainmaster.controller.kube.cache.store import parse_resource_version
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.policyrule import PolicyRule
from trainmaster.runtime.api.constants import JOBSET_API_VERSION, JOBSET_KIND, JOBSET_LABEL
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

T = TypeVar("T")

log = structlog.get_logger(__name__)

CORE_EVENTS: Final = Resource("", "v1", "Event", "events", namespaced=True)

_REASONS: Final = {
    CORE_EVENTS: "find out why a JobSet has no Jobs: its controller says that in an event and nowhere else",
    PODS: "find out why a TrainJob does not start, or which container of it failed first: its pods tell that",
}

TIME_LIMIT: Final = 20.0
MOST_EVENTS: Final = 20
MOST_PODS: Final = 1000
MOST_WAITING: Final = 50
"""Pods that do not run of which all is kept that they tell."""

PAGE: Final = 100
_STALE: Final = timedelta(minutes=20)
"""Age from which an event of a refused Job says nothing any more: JobSet's controller has been trying again since."""


def policy_rules(watches: Iterable[Watch]) -> Iterator[PolicyRule]:
    """Return the rights that it takes where JobSets are built."""
    if any((watch.api_version, watch.kind) == (JOBSET_API_VERSION, JOBSET_KIND) for watch in watches if watch.writes):
        for resource, reason in _REASONS.items():
            yield PolicyRule(resource=resource, verbs=("list",), needed_by="trainjob_controller", reason=reason)


class Unread(Exception):
    """The server did not answer; its cause is the error."""

    @property
    def is_forbidden(self) -> bool:
        """Whether the right to read is missing, so that reading again is of no use."""
        return isinstance(self.__cause__, Forbidden)


async def _answer(reading: Awaitable[T], clock: Clock, jobset: JsonObject, what: str) -> T:
    try:
        async with clock.timeout(TIME_LIMIT):
            return await reading
    except (KubeError, TimeoutError) as error:
        unread = Unread(str(error) or f"no answer within {TIME_LIMIT:.0f} seconds")
        write = log.debug if isinstance(error, Forbidden) and error.told else log.info
        write(f"{what} could not be read", jobset=jobset["metadata"]["name"], error=str(unread))
        raise unread from error


class PodFailures(NamedTuple):
    """What is kept of a pod."""

    failures: Sequence[ContainerFailure]
    shown: JsonObject
    """What is kept of what it tells."""


async def read_failed_pods(client: KubeClient, clock: Clock, jobset: JsonObject) -> tuple[list[PodFailures], int]:
    """Return what the pods of a JobSet tell of failures, those without any included, as of which resource version.

    Raises:
        Unread: The server did not answer.
    """
    return await _answer(_read_pods(client, jobset), clock, jobset, "the pods of a failing TrainJob")


async def _read_pods(client: KubeClient, jobset: JsonObject) -> tuple[list[PodFailures], int]:
    namespace, selector = jobset["metadata"]["namespace"], f"{JOBSET_LABEL}={jobset['metadata']['name']}"
    found: list[PodFailures] = []
    waiting = 0
    token: str | None = None
    while True:
        page = await client.list(PODS, namespace, label_selector=selector, limit=PAGE, continue_token=token)
        for pod in page.get("items") or ():
            if _is_of(pod, jobset["metadata"]["uid"]):
                waiting += not is_running(pod)
                found.append(PodFailures(container_failures(pod), kept(pod, wholly=waiting <= MOST_WAITING)))
        metadata = page.get("metadata") or {}
        token = metadata.get("continue")
        if not token or len(found) >= MOST_PODS:
            return found, parse_resource_version(metadata.get("resourceVersion"))


async def read_refused_jobs(client: KubeClient, clock: Clock, jobset: JsonObject) -> str | None:
    """Return why a JobSet lacks Jobs, by the newest event about some of them; None if none says; raises `Unread`."""
    selector = f"involvedObject.uid={jobset['metadata']['uid']},reason={JOB_CREATION_FAILED}"
    reading = _read_events(client, jobset, [selector])
    events = await _answer(reading, clock, jobset, "events of a JobSet that has no Jobs")
    recent = [(each.last, each.note) for each in events if each.last is not None and clock.now() - each.last < _STALE]
    about = (note for _, note in sorted(recent, reverse=True) if _is_about(note, jobset))
    return next((f'the Jobs of JobSet "{jobset["metadata"]["name"]}" are refused: {note}' for note in about), None)


async def read_refused_pods(client: KubeClient, clock: Clock, jobset: JsonObject) -> list[Event]:
    """Return the events that tell why the first Job of each ReplicatedJob has no pods; raises `Unread`."""
    jobs = (jobset.get("spec") or {}).get("replicatedJobs") or ()
    names = [f"{jobset['metadata']['name']}-{each['name']}-0" for each in jobs]
    selectors = [f"involvedObject.kind=Job,involvedObject.name={name},reason=FailedCreate" for name in names]
    reading = _read_events(client, jobset, selectors)
    return await _answer(reading, clock, jobset, "events of Jobs that have no pods")


async def _read_events(client: KubeClient, jobset: JsonObject, selectors: Iterable[str]) -> list[Event]:
    found: list[Event] = []
    for selector in selectors:
        namespace = jobset["metadata"]["namespace"]
        page = await client.list(CORE_EVENTS, namespace, field_selector=selector, limit=MOST_EVENTS)
        found += map(parse_event, page.get("items") or ())
    return found


def _is_about(note: str, jobset: JsonObject) -> bool:
    """Whether an event is about Jobs that are still not there: of those that are, there may be older events."""
    if not stored_status(jobset).get("replicatedJobsStatus"):
        return True  # the controller has not got over its first Job
    return any(f"{jobset['metadata']['name']}-{name}-" in note for name in without_jobs(jobset))


def _is_of(pod: JsonObject, uid: str) -> bool:
    """Whether a pod is of the JobSet itself, not of an earlier one of its name, nor another one with its labels."""
    return is_of_jobset(pod) and ((pod["metadata"].get("labels") or {}).get(JOBSET_UID_LABEL) or uid) == uid


def replaced(pods: Iterable[PodFailures]) -> dict[str, int]:
    """Return how many pods had the place of each pod before, by UID."""
    of_places = places(each.shown for each in pods)
    return {pod["metadata"]["uid"]: number for there in of_places for number, pod in enumerate(there) if number}


def overcome(pods: Sequence[PodFailures], attempt: int) -> Iterator[ContainerFailure]:
    """Return the failures after which something else has been started in the same place."""
    newest = {there[-1]["metadata"]["uid"] for there in places(each.shown for each in pods)}
    for pod in pods:
        for each in pod.failures:
            if each.superseded or each.attempt < attempt or each.pod_uid not in newest:
                yield each
