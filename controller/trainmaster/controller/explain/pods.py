"""The pods of a job: which of them count now, what each of them is at, and which ones miss. Pure.

Of pods that had the same place one after the other, the newest counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from trainmaster.controller.container_failures import (
    REPLICATED_JOB_LABEL,
    ContainerFailure,
    container_failures,
    container_statuses,
    rank_of,
    restart_attempt,
)
from trainmaster.controller.explain.findings import parse_time
from trainmaster.controller.explain.view import JobView, role_of
from trainmaster.controller.job_fields import JobFields, mapping, number
from trainmaster.runtime.api.constants import COMPLETION_INDEX_ANNOTATION, FAILED, JOB_INDEX_LABEL
from trainmaster.runtime.jobs.constants import REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL
from trainmaster.runtime.jsontree import JsonObject

_LAST: Final = 1 << 31
_INITIALIZING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons for which a container waits in the normal course of things."""

_NAMED: Final = 4
_LONGEST_MESSAGE: Final = 2048
"""Characters: as much as a kubelet keeps of a log."""


def is_own(pod: JsonObject, job: JobFields) -> bool:
    """Tell whether a pod with the labels of a job is its own, by its owners: others may have the same labels."""
    return is_of_jobset(pod) if job.is_trainjob else any(each.get("uid") == job.uid for each in owners_of(pod))


def is_of_jobset(pod: JsonObject) -> bool:
    """Tell whether a pod with the labels of a JobSet is of one of its Jobs."""
    return any(each.get("kind") == "Job" for each in owners_of(pod))


def owners_of(obj: JsonObject) -> Sequence[JsonObject]:
    """Return the references to the owners of an object."""
    return obj["metadata"].get("ownerReferences") or ()


class Place(NamedTuple):
    """What a pod is of a job, and what it shares with those that it replaces."""

    group: str
    """The ReplicatedJob, or the replica type in small letters."""

    job: int
    """Which Job of the ReplicatedJob."""

    number: int
    """Within that."""


def place_of(pod: JsonObject) -> Place | None:
    """Return the place of a pod; None if its labels do not tell."""
    labels = pod["metadata"].get("labels") or {}
    if REPLICATED_JOB_LABEL in labels:
        index = labels.get(COMPLETION_INDEX_ANNOTATION)
        if index is None:
            return None
        return Place(labels[REPLICATED_JOB_LABEL], _number(labels.get(JOB_INDEX_LABEL)), _number(index))
    if REPLICA_TYPE_LABEL in labels:
        return Place(labels[REPLICA_TYPE_LABEL].lower(), 0, _number(labels.get(REPLICA_INDEX_LABEL)))
    return None


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0


def places(pods: Iterable[JsonObject]) -> list[list[JsonObject]]:
    """Return the pods that had the same place one after the other in an attempt of the job, the newest of each last."""
    there: dict[object, list[JsonObject]] = {}
    for pod in pods:
        place = place_of(pod) or pod["metadata"]["uid"]
        there.setdefault((restart_attempt(pod), place), []).append(pod)
    return [sorted(of_place, key=_age_order) for of_place in there.values()]


def known_pods(view: JobView) -> list[JsonObject]:
    """Return all pods of a job that anybody still tells of, deleted ones as well."""
    pods = (*(view.former_pods or ()), *(view.pods or ()))
    return list({pod["metadata"]["uid"]: pod for pod in pods}.values())


def current_pods(view: JobView) -> list[JsonObject]:
    """Return the newest pod of each place, of the last attempt, in the order of nodes."""
    pods = view.pods or ()
    attempt = max(map(restart_attempt, pods), default=0)
    return sorted((each[-1] for each in places(pods) if restart_attempt(each[-1]) == attempt), key=_order)


@dataclass(frozen=True, slots=True)
class FailedContainer:
    """A failure of a container, with its pod and the last lines that are known of it."""

    failure: ContainerFailure
    pod: JsonObject
    lines: Sequence[str]
    """Of its log, or what it said last; none if nobody read them."""


def last_failures(view: JobView) -> list[FailedContainer]:
    """Return how containers failed last, whoever is most likely the cause of the others first.

    Only the last attempt counts in which any failed, of a job that has failed the last one; and of pods that had one
    place the newest. The run of a failure counts the pods that had its place before.
    """
    pods = known_pods(view)
    of_places = places(pods)
    attempts = sorted(set(map(restart_attempt, pods)), reverse=True)
    is_final = view.outcome == FAILED
    for attempt in attempts[:1] if is_final else attempts:
        there = [
            [_failures(view, pod, before=number) for number, pod in enumerate(each)]
            for each in of_places
            if restart_attempt(each[0]) == attempt
        ]
        # Where nothing else tells why a job has failed: a run that was stopped then has overcome nothing.
        if found := _newest(there, superseded=False) or (_newest(there, superseded=True) if is_final else []):
            return sorted(found, key=lambda each: (_is_gone_initially(each), each.failure.precedence))
    return []


def _is_gone_initially(failed: FailedContainer) -> bool:
    """Whether it is an init container, which fails alike in all pods, of a pod whose log cannot be read for long."""
    return failed.failure.is_initial and bool(failed.pod["metadata"].get("deletionTimestamp"))


def _newest(of_places: Sequence[Sequence[list[FailedContainer]]], *, superseded: bool) -> list[FailedContainer]:
    """Return the failures of the newest pods; where those have none, of the ones before, which tell why there are new
    ones.
    """
    there = [[[f for f in of_pod if f.failure.superseded is superseded] for of_pod in each] for each in of_places]
    newest = [each for of_place in there for each in of_place[-1]]
    return newest or [each for of_place in there for each in next(filter(None, reversed(of_place)), [])]


def _failures(view: JobView, pod: JsonObject, *, before: int) -> list[FailedContainer]:
    """Return the failures of a pod that others are not to blame for."""
    found = []
    for failure in container_failures(pod):
        if not failure.stopped:
            lines = view.log_of(pod, failure.container)
            message = failure.message or "\n".join(lines)[-_LONGEST_MESSAGE:]
            counted = replace(failure, run=failure.run + before, message=message)
            found.append(FailedContainer(counted, pod, tuple(lines or message.splitlines())))
    return found


def last_attempt_began(view: JobView) -> datetime | None:
    """Return when the first pod of the last attempt was created; None if there was only one, or nobody knows."""
    pods = current_pods(view)
    if not any(map(restart_attempt, pods)):
        return None
    created = [parse_time(pod["metadata"].get("creationTimestamp")) for pod in pods]
    return min((each for each in created if each is not None), default=None)


def _age_order(pod: JsonObject) -> tuple[str, bool, str]:
    metadata = pod["metadata"]
    return str(metadata.get("creationTimestamp")), not metadata.get("deletionTimestamp"), str(metadata.get("uid"))


def _order(pod: JsonObject) -> tuple[int, Place, str]:
    rank = rank_of(pod)
    return _LAST if rank is None else rank, place_of(pod) or Place("", 0, 0), pod["metadata"]["name"]


def phase_of(pod: JsonObject) -> str:
    """Return the phase of a pod; a new one is Pending before anybody says so."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_running(pod: JsonObject) -> bool:
    """Tell whether all containers of a pod run, or have ended well."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return phase_of(pod) == "Running" and bool(statuses) and all(_goes_on(each) for each in statuses)


def _goes_on(status: JsonObject) -> bool:
    state = status.get("state") or {}
    ended = state.get("terminated")
    return "running" in state or (ended is not None and not ended.get("exitCode"))


def has_ended(pod: JsonObject) -> bool:
    """Tell whether nothing of a pod runs any more, well or not."""
    return phase_of(pod) in ("Succeeded", "Failed")


def has_succeeded(pod: JsonObject) -> bool:
    """Tell whether a pod has done its work."""
    return phase_of(pod) == "Succeeded"


def is_scheduled(pod: JsonObject) -> bool:
    """Tell whether a pod has a node."""
    return bool((pod.get("spec") or {}).get("nodeName"))


def started_at(pod: JsonObject) -> datetime | None:
    """Return when the last of the containers that run now was started."""
    found = [
        parse_time(((each.get("state") or {}).get("running") or {}).get("startedAt"))
        for each in container_statuses(pod)
    ]
    return max((each for each in found if each is not None), default=None)


def condition_of(obj: JsonObject, condition_type: str) -> JsonObject:
    """Return a condition of a pod, or of any object, whatever its status is; empty if it has none."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == condition_type), {})


def has_failed(pod: JsonObject) -> bool:
    """Tell whether a pod, or a container of it at some time, has failed."""
    return phase_of(pod) == "Failed" or bool(container_failures(pod))


def what_it_waits_for(pod: JsonObject) -> str:
    """Say in a few words what a pod that does not run is at."""
    if pod["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    if gates := (pod.get("spec") or {}).get("schedulingGates"):
        return f"it is held back by scheduling gates: {', '.join(str(gate.get('name')) for gate in gates)}"
    if not is_scheduled(pod) and phase_of(pod) == "Pending":
        scheduled = condition_of(pod, "PodScheduled")
        told = scheduled.get("message") if scheduled.get("status") == "False" else None
        return f"it has no node{f': {told}' if told else ''}"
    for status in container_statuses(pod):
        waiting = (status.get("state") or {}).get("waiting")
        if waiting is not None and str(waiting.get("reason") or "") not in _INITIALIZING:
            told = f": {waiting['message']}" if waiting.get("message") else ""
            return f"its container {status.get('name')} waits: {waiting['reason']}{told}"
    if phase_of(pod) == "Pending":
        return "its containers are being created"
    return f"it is {phase_of(pod)}"


def wanted_pods(view: JobView) -> Mapping[str, int] | None:
    """Return how many pods there are to be now, by ReplicatedJob or replica type; None if nobody can tell.

    Of a JobSet whose ReplicatedJobs start one after the other, only those count whose turn has come.
    """
    if not view.is_trainjob:
        return dict(_wanted_replicas(view))
    if view.jobsets is None:
        return None
    return {name: count for jobset in view.jobsets for name, count in _wanted_of(jobset)}


def _wanted_replicas(view: JobView) -> Iterator[tuple[str, int]]:
    for field, value in view.spec.items():
        if field.endswith("ReplicaSpecs") and isinstance(value, dict):
            for replica_type, spec in value.items():
                yield replica_type.lower(), number(mapping(spec).get("replicas"), 1)


def _wanted_of(jobset: JsonObject) -> Iterator[tuple[str, int]]:
    spec = jobset.get("spec") or {}
    if spec.get("suspend"):
        return
    counts = {each.get("name"): each for each in (jobset.get("status") or {}).get("replicatedJobsStatus") or ()}
    replicas = {each["name"]: int(each.get("replicas", 1)) for each in spec.get("replicatedJobs") or ()}
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    earlier: list[JsonObject] = []
    for replicated_job in spec.get("replicatedJobs") or ():
        needs = [*(replicated_job.get("dependsOn") or ()), *(earlier if in_order else ())]
        if all(_is_reached(each, counts.get(each.get("name")) or {}, replicas) for each in needs):
            yield replicated_job["name"], pods_at_once(replicated_job)
        earlier.append({"name": replicated_job["name"]})


def pods_at_once(replicated_job: JsonObject) -> int:
    """Return how many pods a ReplicatedJob has at the same time."""
    job = (replicated_job.get("template") or {}).get("spec") or {}
    parallelism = int(job.get("parallelism", 1))
    return int(replicated_job.get("replicas", 1)) * min(parallelism, int(job.get("completions", parallelism)))


def _is_reached(dependency: JsonObject, count: JsonObject, replicas: Mapping[str, int]) -> bool:
    states = ("succeeded",) if dependency.get("status") == "Complete" else ("ready", "succeeded", "failed")
    return sum(int(count.get(each) or 0) for each in states) >= replicas.get(str(dependency.get("name")), 0)


def missing_pods(view: JobView) -> Mapping[str, int]:
    """Return how many pods have not been created, by ReplicatedJob or replica type; none if nobody can tell."""
    wanted = wanted_pods(view)
    if wanted is None or view.pods is None or view.has_more_pods:
        return {}
    there = Counter(_group_of(pod) for pod in current_pods(view))
    return {group: count - there[group] for group, count in wanted.items() if count > there[group]}


def _group_of(pod: JsonObject) -> str:
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(REPLICATED_JOB_LABEL) or labels.get(REPLICA_TYPE_LABEL, "")).lower()


def named(pods: Sequence[JsonObject]) -> str:
    """Name some pods by what they are: `node 2, node 3 and 4 more`."""
    roles = [role_of(pod) for pod in pods]
    more = f" and {len(roles) - _NAMED} more" if len(roles) > _NAMED else ""
    return ", ".join(roles[:_NAMED]) + more
