"""The PodGroup of a job: gangs of pods that start together or not at all, one for each job.

The gang scheduler is one for all jobs, which the configuration names: `volcano`, or the name of the scheduler that has
the coscheduling plugin of scheduler-plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from trainmaster.runtime.api.constants import (
    COSCHEDULING_API_VERSION,
    COSCHEDULING_POD_LABEL,
    POD_GROUP_KIND,
    VOLCANO_API_VERSION,
    VOLCANO_POD_ANNOTATION,
)
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jobs.labels import owner_reference
from trainmaster.runtime.jobs.types import ReplicaSpec
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, sum_resources, times

VOLCANO_TASK_ANNOTATION: Final = "volcano.sh/task-spec"
DEFAULT_QUEUE: Final = "default"

_ENQUEUED_BY_NOBODY: Final = ("", "Pending")
"""Phases of a PodGroup of Volcano for which there is no room yet."""


class GangScheduler(Protocol):
    """What a gang scheduler wants of a job."""

    @property
    def api_version(self) -> str:
        """That of its PodGroup."""

    @property
    def scheduler_name(self) -> str:
        """That of its pods."""

    def pod_group(self, job: Job, existing: JsonObject | None, priorities: Mapping[str, int]) -> JsonObject:
        """Build the PodGroup; `priorities` are the values of PriorityClasses by name."""

    def mark(self, job: Job, pod: JsonObject, replica_type: str) -> None:
        """Make a pod a member of the gang."""

    def admits(self, pod_group: JsonObject) -> bool:
        """Tell whether pods may be created now."""


def gang_scheduler(name: str) -> GangScheduler | None:
    """Return the gang scheduler of a name, which is Volcano in any case, or that of the scheduler; None without one."""
    if not name:
        return None
    if name.lower() == Volcano.scheduler_name:
        return Volcano()
    return SchedulerPlugins(scheduler_name=name)


@dataclass(frozen=True)
class Volcano:
    """Volcano: pods are created when their group has been enqueued."""

    api_version: str = VOLCANO_API_VERSION
    scheduler_name: str = "volcano"

    def pod_group(self, job: Job, existing: JsonObject | None, priorities: Mapping[str, int]) -> JsonObject:
        """Build the PodGroup; a queue that somebody else chose stays while the job names none (V1-B24)."""
        policy = job.run_policy.scheduling_policy
        chosen = ((existing or {}).get("spec") or {}).get("queue")
        spec: JsonObject = {"queue": policy.queue or chosen or DEFAULT_QUEUE}
        if policy.priority_class:
            spec["priorityClassName"] = policy.priority_class
        return _pod_group(job, self.api_version, priorities, spec)

    def mark(self, job: Job, pod: JsonObject, replica_type: str) -> None:
        """Name the group and the task of a pod."""
        _set_scheduler(pod, self.scheduler_name)
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[VOLCANO_POD_ANNOTATION] = job.name
        annotations[VOLCANO_TASK_ANNOTATION] = replica_type.lower()

    def admits(self, pod_group: JsonObject) -> bool:
        """Tell whether the group has been enqueued."""
        return ((pod_group.get("status") or {}).get("phase") or "") not in _ENQUEUED_BY_NOBODY


@dataclass(frozen=True)
class SchedulerPlugins:
    """scheduler-plugins: the scheduler counts the pods that there are, so they are created at once."""

    scheduler_name: str
    api_version: str = COSCHEDULING_API_VERSION

    def pod_group(
        self,
        job: Job,
        existing: JsonObject | None,  # noqa: ARG002 - nothing of it is anybody else's
        priorities: Mapping[str, int],
    ) -> JsonObject:
        """Build the PodGroup."""
        timeout = job.run_policy.scheduling_policy.schedule_timeout_seconds
        return _pod_group(
            job, self.api_version, priorities, {} if timeout is None else {"scheduleTimeoutSeconds": timeout}
        )

    def mark(self, job: Job, pod: JsonObject, replica_type: str) -> None:  # noqa: ARG002 - all types are one task
        """Name the group of a pod."""
        _set_scheduler(pod, self.scheduler_name)
        pod["metadata"]["labels"][COSCHEDULING_POD_LABEL] = job.name

    def admits(self, pod_group: JsonObject) -> bool:  # noqa: ARG002 - the group only has to exist
        """Tell that pods may be created."""
        return True


def has_other_scheduler(job: Job, replica_type: str, gang: GangScheduler) -> bool:
    """Tell whether a template names another scheduler than that of the gang; it is left alone."""
    named = (job.replica_specs[replica_type].template.get("spec") or {}).get("schedulerName")
    return bool(named) and named != gang.scheduler_name


def _set_scheduler(pod: JsonObject, name: str) -> None:
    if not pod["spec"].get("schedulerName"):
        pod["spec"]["schedulerName"] = name


def _pod_group(job: Job, api_version: str, priorities: Mapping[str, int], spec: JsonObject) -> JsonObject:
    policy = job.run_policy.scheduling_policy
    total = job.total_replicas
    members = total if policy.min_available is None else policy.min_available
    if policy.min_resources is None:
        amounts: Mapping[str, Any] = {
            name: str(amount) for name, amount in min_resources(job, members, priorities).items()
        }
    else:
        amounts = policy.min_resources
    metadata: JsonObject = {
        "name": job.name,
        "namespace": job.namespace,
        "ownerReferences": [owner_reference(job)],
    }
    if job.metadata.annotations:
        metadata["annotations"] = dict(job.metadata.annotations)
    return {
        "apiVersion": api_version,
        "kind": POD_GROUP_KIND,
        "metadata": metadata,
        "spec": {"minMember": members, "minResources": dict(amounts), **spec},
    }


def min_resources(job: Job, members: int, priorities: Mapping[str, int]) -> Resources:
    """Sum up what so many pods of a job request: those of the highest priority first, then in the order of types.

    V1-B11: the original took types by chance. Of containers that run side by side; one without requests counts with its
    limits.
    """
    shares: list[Resources] = []
    for replica in sorted(job.replica_specs.values(), key=lambda each: -_priority(each, priorities)):
        count = max(min(replica.replicas, members), 0)
        members -= count
        if count:
            shares.append(times(_requests(replica), count))
    return sum_resources(shares)


def _priority(replica: ReplicaSpec, priorities: Mapping[str, int]) -> int:
    return priorities.get((replica.template.get("spec") or {}).get("priorityClassName") or "", 0)


def _requests(replica: ReplicaSpec) -> Resources:
    """Sum up what the containers of one pod request."""
    parts: list[Resources] = []
    for container in (replica.template.get("spec") or {}).get("containers") or []:
        resources = container.get("resources") or {}
        amounts = resources.get("requests") if resources.get("requests") is not None else resources.get("limits")
        parts.append({name: Quantity.parse(value) for name, value in (amounts or {}).items()})
    return sum_resources(parts)
