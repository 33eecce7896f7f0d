"""The replicas of one type: which pods there are, which lack, which are too many, and which are to be replaced. Pure.

Rules (Training Operator V1, and the fixes of its defects):

- A pod belongs to a slot by its name. What the job controls under another name of the type, with an index beyond
  `replicas`, is too many; anything else is left alone.
- A pod on its way out is neither active nor failed (V1-B5), also if its phase is Failed, which whoever is deleted ends
  in: its slot is filled again when it is gone.
- A failed pod is replaced by the restart policy of its type, for all kinds alike (V1-B10): `Always` and `OnFailure`
  replace it, `ExitCode` does if the exit code is 128 or more, or unknown (as of an evicted pod), and otherwise fails
  the job; `Never` leaves it to the kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trainmaster.controller.container_failures import container_statuses
from trainmaster.runtime.jobs.constants import (
    ALWAYS,
    EXIT_CODE,
    ON_FAILURE,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
)
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.pods import training_container
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jsontree import JsonObject

FIRST_RETRYABLE_EXIT_CODE: Final = 128
"""From here on it was a signal that ended the container."""


@dataclass(slots=True)
class Replicas:
    """The replicas of one type of a job."""

    replica_type: str
    names: list[str]
    """Those of all slots, which pods and their Services have."""

    pods: list[JsonObject] = field(default_factory=list)
    """Those that have their slot, in its order."""

    missing: list[int] = field(default_factory=list)
    """Indexes of slots without a pod."""

    surplus: list[JsonObject] = field(default_factory=list)
    """Pods of slots that are not wanted any more, and not yet on their way out."""

    restarts: list[JsonObject] = field(default_factory=list)
    """Failed pods that are to be replaced, and not yet on their way out."""

    failed_for_good: list[JsonObject] = field(default_factory=list)
    """Failed pods whose exit code says that trying again is no use."""

    status: ReplicaStatus = field(default_factory=ReplicaStatus)


def by_replica_type(objects: Iterable[JsonObject]) -> Mapping[str, Sequence[JsonObject]]:
    """Group pods or Services by the type that their labels name, in small letters.

    A job may have as many types as pods: each of them looks at its own objects only.
    """
    groups: dict[str, list[JsonObject]] = {}
    for obj in objects:
        groups.setdefault((obj["metadata"].get("labels") or {}).get(REPLICA_TYPE_LABEL) or "", []).append(obj)
    return groups


def replicas_of(
    job: Job, replica_type: str, pods: Mapping[str, JsonObject], by_type: Mapping[str, Sequence[JsonObject]]
) -> Replicas:
    """Sort the pods of one type.

    Args:
        job: The job.
        replica_type: The type.
        pods: All pods that the job controls, by name.
        by_type: The same by their type.
    """
    spec = job.replica_specs[replica_type]
    names = [job.kind.pod_name(job, replica_type, index) for index in range(max(spec.replicas, 0))]
    found = Replicas(replica_type, names)
    for index, name in enumerate(names):
        pod = pods.get(name)
        if pod is None:
            found.missing.append(index)
        else:
            found.pods.append(pod)
    wanted = set(names)
    found.surplus = [
        pod
        for pod in by_type.get(replica_type.lower(), ())
        if pod["metadata"]["name"] not in wanted and is_beyond(pod, spec.replicas) and not is_terminating(pod)
    ]
    trainer = trainer_of(job, replica_type) if spec.restart_policy == EXIT_CODE else ""
    for pod in found.pods:
        if phase_of(pod) != "Failed" or is_terminating(pod):
            continue
        if spec.restart_policy in (ALWAYS, ON_FAILURE):
            found.restarts.append(pod)
        elif spec.restart_policy == EXIT_CODE:
            code = exit_code(pod, trainer)
            retry = code is None or code >= FIRST_RETRYABLE_EXIT_CODE
            (found.restarts if retry else found.failed_for_good).append(pod)
    found.status = _count(found.pods)
    return found


def phase_of(pod: JsonObject) -> str:
    """Return the phase of a pod; empty if nobody has set it."""
    return str((pod.get("status") or {}).get("phase") or "")


def is_terminating(obj: JsonObject) -> bool:
    """Tell whether an object is on its way out."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def trainer_of(job: Job, replica_type: str) -> str:
    """Return the name of the container of a type that trains."""
    return str(training_container(job, replica_type).get("name") or job.kind.container_name)


def exit_code(pod: JsonObject, container: str) -> int | None:
    """Return the exit code of the container that trains, or of the first one if none has its name; None: unknown."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    named = next((each for each in statuses if each.get("name") == container), None)
    status = named or next(iter(statuses), None) or {}
    terminated = (status.get("state") or {}).get("terminated")
    return terminated.get("exitCode") if isinstance(terminated, dict) else None


def restart_count(pod: JsonObject) -> int:
    """Return how often the containers of a pod were restarted in place."""
    return sum(each.get("restartCount") or 0 for each in container_statuses(pod))


def is_beyond(obj: JsonObject, replicas: int) -> bool:
    """Return whether a pod or a Service is that of a slot beyond those that its type wants."""
    index = (obj["metadata"].get("labels") or {}).get(REPLICA_INDEX_LABEL) or ""
    return index.isdecimal() and int(index) >= replicas


def _count(pods: Iterable[JsonObject]) -> ReplicaStatus:
    phases = [(phase_of(pod), is_terminating(pod)) for pod in pods]
    return ReplicaStatus(
        active=phases.count(("Running", False)),
        succeeded=sum(phase == "Succeeded" for phase, _ in phases),
        failed=phases.count(("Failed", False)),
    )
