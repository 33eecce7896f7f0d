"""Reading the pods of one JobSet, for the failures of their containers, and for why they do not start.

Guarantees:
- It is bounded: `MOST_PODS` pods in pages, within `TIME_LIMIT` seconds.
- Nothing waits for it in vain: without permission, without an answer, all goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from trainmaster.controller.container_failures import (
    JOB_INDEX_LABEL,
    JOBSET_LABEL,
    JOBSET_UID_LABEL,
    REPLICATED_JOB_LABEL,
    RESTART_ATTEMPT_LABEL,
    ContainerFailure,
    container_failures,
)
from trainmaster.controller.diagnosis.waiting import kept
from trainmaster.controller.explain.pods import is_running
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.errors import Forbidden, KubeError
from trainmaster.controller.kube.rest.policyrule import PolicyRule
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.runtime.api.constants import COMPLETION_INDEX_ANNOTATION, JOBSET_API_VERSION, JOBSET_KIND
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch

log = structlog.get_logger(__name__)


def policy_rules(watches: Iterable[Watch]) -> Iterator[PolicyRule]:
    """Return the rights that it takes where JobSets are built."""
    if any((watch.api_version, watch.kind) == (JOBSET_API_VERSION, JOBSET_KIND) for watch in watches if watch.writes):
        yield PolicyRule(
            resource=PODS,
            verbs=("list",),
            needed_by="trainjob_controller",
            reason="find out why a TrainJob does not start, or which container of it failed first: its pods tell that",
        )


MOST_PODS: Final = 1000
MOST_WAITING: Final = 50
"""Pods that do not run of which all is kept that they tell."""

PAGE: Final = 100
TIME_LIMIT: Final = 3.0


class Reader(Protocol):
    """Reads pods and events from the server."""

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None,
        continue_token: str | None = None,
    ) -> JsonObject:
        """Read a collection, or a page of it; raises errors of the client."""


class PodFailures(NamedTuple):
    """What is kept of a pod."""

    uid: str
    created: str
    place: tuple[str | None, ...]
    """What it shares with the pods that it replaces."""

    failures: Sequence[ContainerFailure]
    shown: JsonObject
    """What is kept of what it tells."""


async def read_failed_pods(client: Reader, clock: Clock, jobset: JsonObject) -> list[PodFailures] | None:
    """Return what the pods of a JobSet tell of failures, those without any included; None if nobody says."""
    metadata = jobset["metadata"]
    found: list[PodFailures] = []
    waiting = 0
    token: str | None = None
    try:
        async with clock.timeout(TIME_LIMIT):
            while True:
                page = await client.list(
                    PODS,
                    metadata["namespace"],
                    label_selector=f"{JOBSET_LABEL}={metadata['name']}",
                    limit=PAGE,
                    continue_token=token,
                )
                pods = page.get("items") or ()
                for pod in pods:
                    if _is_of(pod, metadata["uid"]):
                        waiting += not is_running(pod)
                        found.append(_failures(pod, wholly=waiting <= MOST_WAITING))
                token = (page.get("metadata") or {}).get("continue")
                if not token or len(found) >= MOST_PODS:
                    return found
    except (KubeError, TimeoutError) as error:
        write = log.debug if isinstance(error, Forbidden) and error.told else log.info
        write("the pods of a failing TrainJob could not be read", jobset=metadata["name"], error=str(error))
        return None


def _failures(pod: JsonObject, *, wholly: bool) -> PodFailures:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    place = (REPLICATED_JOB_LABEL, JOB_INDEX_LABEL, RESTART_ATTEMPT_LABEL, COMPLETION_INDEX_ANNOTATION)
    return PodFailures(
        metadata["uid"],
        metadata.get("creationTimestamp") or "",
        tuple(labels.get(each) for each in place),
        container_failures(pod),
        kept(pod, wholly=wholly),
    )


def _is_of(pod: JsonObject, uid: str) -> bool:
    """Whether a pod is of the JobSet itself, not of an earlier one of its name."""
    return ((pod["metadata"].get("labels") or {}).get(JOBSET_UID_LABEL) or uid) == uid


def _places(pods: Iterable[PodFailures]) -> Iterator[list[PodFailures]]:
    """Return the pods that had the same place one after the other: `restartPolicy: Never` has pods replaced."""
    places: dict[tuple[str | None, ...], list[PodFailures]] = defaultdict(list)
    for pod in pods:
        places[pod.place if pod.place[-1] is not None else (pod.uid,)].append(pod)
    return (sorted(there, key=lambda each: each.created) for there in places.values())


def replaced(pods: Iterable[PodFailures]) -> dict[str, int]:
    """Return how many pods had the place of each pod before, by UID."""
    return {pod.uid: number for there in _places(pods) for number, pod in enumerate(there) if number}


def overcome(pods: Iterable[PodFailures], attempt: int) -> Iterator[ContainerFailure]:
    """Return the failures after which something else has been started in the same place."""
    for there in _places(pods):
        for number, pod in enumerate(there, 1):
            yield from (
                each for each in pod.failures if each.superseded or each.attempt < attempt or number < len(there)
            )
