"""The replicas of one type: which pods there are, which lack, which are too many, and which are replaced, and when.

Rules (Training Operator V1, and the fixes of its defects):

- A pod belongs to a slot by its name. What the job controls under another name of the type, with an index beyond
  `replicas`, is too many; anything else is left alone.
- A pod on its way out is neither active nor failed (V1-B5), also if its phase is Failed, which whoever is deleted ends
  in: its slot is filled again when it is gone.
- A failed pod is replaced by the restart policy of its type, for all kinds alike (V1-B10): `Always` and `OnFailure`
  replace it, `ExitCode` does if the exit code is 128 or more, or unknown (as of an evicted pod), and otherwise fails
  the job; `Never` leaves it to the kind.
- V1-B2: `backoffLimit` counts the restarts of containers in place, of all pods that there are, and the replacements of
  failed pods, which the status keeps (`restarts`). A failed pod is counted once, whatever happens between the writes:
  its UID is kept with the count until it is gone.
- A pod may fail as soon as it exists: a node refuses it, an image has no program. The first few of a slot are replaced
  at once, then each has to wait twice as long as the one before, as CrashLoopBackOff is for containers.
- Each replacement is told once, also if the failed pod cannot be deleted.
- What `RestartBackoff` remembers only delays, and saves events: after a restart of the process the first few come at
  once again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from cachetools import LRUCache

from trainmaster.controller.container_failures import container_statuses, exit_code
from trainmaster.controller.explain.pods import phase_of
from trainmaster.controller.kube.clock import Clock
from trainmaster.runtime.jobs.constants import ALWAYS, EXIT_CODE, ON_FAILURE, REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.pods import trainer_of
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jsontree import JsonObject

FIRST_RETRYABLE_EXIT_CODE: Final = 128
"""From here on it was a signal that ended the container."""

FREE: Final = 3
"""Replacements of a slot that are made at once."""

FIRST_DELAY: Final = 10.0
LONGEST_DELAY: Final = 300.0
"""Seconds, as the kubelet's for containers."""

FORGOTTEN_AFTER: Final = 600.0
"""Seconds without a replacement, after which a slot starts anew; so does the kubelet."""

_REMEMBERED: Final = 65_536

_RESTARTED: tuple[str, ...] = (ALWAYS, ON_FAILURE, EXIT_CODE)


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
    """Sort the pods of one type, out of all that the job controls: by name, and by their type."""
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
        if phase_of(pod) != "Failed" or is_terminating(pod) or job.restarts_together:
            continue
        if spec.restart_policy in (ALWAYS, ON_FAILURE):
            found.restarts.append(pod)
        elif spec.restart_policy == EXIT_CODE:
            code = exit_code(pod, trainer)
            retry = code is None or code >= FIRST_RETRYABLE_EXIT_CODE
            (found.restarts if retry else found.failed_for_good).append(pod)
    found.status = _count(found.pods)
    return found


def is_terminating(obj: JsonObject) -> bool:
    """Tell whether an object is on its way out."""
    return bool(obj["metadata"].get("deletionTimestamp"))


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


@dataclass(slots=True)
class _Slot:
    count: int
    at: float
    uid: str
    """Of the pod that was replaced last."""


class RestartBackoff:
    """Counts the replacements of each slot."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slots: LRUCache[tuple[str, str], _Slot] = LRUCache(_REMEMBERED)
        """By UID of the job and name of the pod."""

    def wait(self, job_uid: str, pod: JsonObject) -> float:
        """Return the seconds until a failed pod may be replaced; 0 if it may be now, or was told to be."""
        slot = self._slots.get((job_uid, pod["metadata"]["name"]))
        if slot is None or slot.count < FREE or self.is_recorded(job_uid, pod):
            return 0.0
        passed = self._clock.monotonic() - slot.at
        return max(min(FIRST_DELAY * 2.0 ** min(slot.count - FREE, 10), LONGEST_DELAY) - passed, 0.0)

    def is_recorded(self, job_uid: str, pod: JsonObject) -> bool:
        """Return whether it was noted that a pod is replaced."""
        slot = self._slots.get((job_uid, pod["metadata"]["name"]))
        return slot is not None and slot.uid == pod["metadata"]["uid"]

    def record(self, job_uid: str, pod: JsonObject) -> None:
        """Note that a pod is replaced."""
        now, name, uid = self._clock.monotonic(), pod["metadata"]["name"], pod["metadata"]["uid"]
        old = self._slots.get((job_uid, name))
        count = old.count if old is not None and now - old.at < FORGOTTEN_AFTER else 0
        self._slots[job_uid, name] = _Slot(count + 1, now, uid)


def backoff_limit_reached(job: Job, replicas: Iterable[Replicas]) -> bool:
    """Tell whether a job has been restarted as often as its `backoffLimit` allows, what is to be replaced included."""
    limit = job.run_policy.backoff_limit
    if limit is None or job.restarts_together:
        return False
    in_place = replacements = 0
    for each in replicas:
        if limit == 0 and each.status.failed:
            return True
        replacements += _replaced(job, each.replica_type) + sum(1 for _ in _uncounted(job, each))
        if job.replica_specs[each.replica_type].restart_policy in _RESTARTED:
            # Those of a pod that is being replaced have been added to its replacement.
            counted = _counted(job, each.replica_type)
            in_place += sum(restart_count(pod) for pod in each.pods if pod["metadata"]["uid"] not in counted)
    return in_place >= max(limit, 1) or in_place + replacements > limit


def _replaced(job: Job, replica_type: str) -> int:
    """Return how often pods of a type were replaced, and restarted before that, as the status has it."""
    return _status_of(job, replica_type).get("restarts") or 0


def count_restarts(job: Job, replicas: Replicas, there: AbstractSet[str]) -> JsonObject:
    """Return the fields of a type's status that count replacements; empty for a job without `backoffLimit`."""
    if job.run_policy.backoff_limit is None:
        return {}
    new = list(_uncounted(job, replicas))
    count = _replaced(job, replicas.replica_type) + sum(1 + restart_count(pod) for pod in new)
    counted = [uid for uid in _counted(job, replicas.replica_type) if uid in there]
    counted += [pod["metadata"]["uid"] for pod in new]
    fields: JsonObject = {}
    if count:
        fields["restarts"] = count
    if counted:
        fields["restartedPodUIDs"] = counted
    return fields


def _uncounted(job: Job, replicas: Replicas) -> Iterable[JsonObject]:
    counted = set(_counted(job, replicas.replica_type))
    return (pod for pod in replicas.restarts if pod["metadata"]["uid"] not in counted)


def _counted(job: Job, replica_type: str) -> list[str]:
    return _status_of(job, replica_type).get("restartedPodUIDs") or []


def _status_of(job: Job, replica_type: str) -> JsonObject:
    status: JsonObject = (job.status.get("replicaStatuses") or {}).get(replica_type) or {}
    return status
