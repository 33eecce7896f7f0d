"""`JobView`: all that is known of one job at one moment, and what nobody could look at; the input of every decision.

Collections are None where nobody looked, or could look: from what is not known nothing follows. An empty collection
means that there is none. Objects are as the API server gave them, with `kind`; they are not changed.

Commands that advice writes out have the job and its namespace, to be pasted into a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from trainmaster.controller.container_failures import (
    REPLICATED_JOB_LABEL,
    node_title,
    rank_of,
    ranks_of,
)
from trainmaster.controller.explain.findings import Event, ObjectReference, parse_time, reference_to
from trainmaster.controller.job_fields import JobFields
from trainmaster.runtime.api.constants import COMPLETION_INDEX_ANNOTATION, JOB_INDEX_LABEL, MANAGED_BY_TRAINER
from trainmaster.runtime.jobs.constants import (
    MANAGED_BY_TRAINING_OPERATOR,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
)
from trainmaster.runtime.jsontree import JsonObject

Objects = Sequence[JsonObject] | None
"""All objects of a kind that concern the job; None if nobody looked."""


_RESOURCE_OPTIONS: Final = {"cpu": "cpus", "memory": "memory", "nvidia.com/gpu": "gpus"}
"""The options of `trainmaster run` for what nodes ask for."""


class WhyUnread(StrEnum):
    """Why something could not be looked at."""

    FORBIDDEN = "forbidden"
    """Whoever asked has no right to."""

    NOT_SERVED = "not served"
    """The cluster does not have the kind."""

    FAILED = "failed"
    """There was no answer, or none that can be read."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not be looked at."""

    what: str
    """The resource as rights name it: `nodes`, `podgroups.scheduling.volcano.sh`."""

    why: WhyUnread
    text: str
    """One line for people, with what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView(JobFields):
    """What is known of one job: its object, with `apiVersion` and `kind`, and more."""

    now: datetime
    is_deleted: bool = False
    """Whether the job is gone; then it is only as much of one as others still tell of it."""

    result: str = ""
    """How a job that is gone had ended, as the history has it."""

    runtimes: Objects = None
    """The runtime that it names; where there is none of that name, all of the kind."""

    snapshots: Objects = None
    """The ConfigMap in which its runtime is frozen."""

    jobsets: Objects = None
    jobs: Objects = None
    """Of `batch/v1`."""

    pods: Objects = None
    """Its own, in no order, also those that were replaced and those that are being deleted."""

    foreign_pods: Sequence[JsonObject] = ()
    """Those that have its labels, and are not its own."""

    former_pods: Objects = None
    """Those that are deleted, of which an embedded cluster still tells, and has the logs."""

    has_more_pods: bool = False
    """Whether it has more pods than were read: then nothing follows from one that is not among them."""

    services: Objects = None
    """Those through which its pods find each other."""

    events: Sequence[Event] | None = None
    """About the job and what belongs to it, the oldest first."""

    pod_groups: Objects = None
    """Of Volcano and of the scheduler plugins."""

    workloads: Objects = None
    """Of Kueue."""

    quota_holders: Objects = None
    """Workloads of Kueue, of all jobs, that may hold the quota for which the job waits."""

    queues: Objects = None
    """Those that it waits in: LocalQueue and ClusterQueue of Kueue, Queue of Volcano."""

    quotas: Objects = None
    """ResourceQuotas of its namespace."""

    claims: Objects = None
    """PersistentVolumeClaims that its pods name, as far as they exist."""

    storage_classes: Objects = None
    nodes: Objects = None
    """All of the cluster."""

    webhooks: Objects = None
    """Validating and mutating webhook configurations that have a webhook which keeps something from being made."""

    endpoint_slices: Objects = None
    """Those of the Services that these webhooks call."""

    leases: Objects = None
    """Those for which managers of its kind compete."""

    managers: Objects = None
    """Deployments of managers of its kind, in all namespaces."""

    jobset_controllers: Objects = None
    """Deployments of JobSet's controller, in all namespaces."""

    logs: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    """The last lines of containers, by UID of the pod and name of the container; of those that were read."""

    last_output: Mapping[str, datetime | None] = field(default_factory=dict)
    """When containers that train wrote their last line, None if they wrote none, by UID of the pod: of those read."""

    installation: str = ""
    """The command that installs what a program misses; empty if nothing, or if the cluster has no Python of its own."""

    unread: Sequence[Unread] = ()
    command_options: Sequence[str] = ()
    """What commands of kubectl and trainmaster need besides to reach the cluster, as `--kubeconfig FILE`."""

    _events_of: dict[tuple[str, str], list[Event]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """By kind and name of what they are about: of a big job every pod is asked for its own."""

    def __post_init__(self) -> None:
        """Sort the events by what they are about."""
        for event in self.events or ():
            self._events_of.setdefault((event.about.kind, event.about.name), []).append(event)

    @property
    def reference(self) -> ObjectReference:
        """The job as evidence names it."""
        return reference_to(self.object)

    @property
    def managed_by(self) -> str | None:
        """Which other controller the job is for; None if it is for Trainmaster."""
        ours = MANAGED_BY_TRAINER if self.is_trainjob else MANAGED_BY_TRAINING_OPERATOR
        said = self.run_policy.get("managedBy") or ours
        return None if said == ours else str(said)

    @property
    def created(self) -> datetime | None:
        """When the job was created."""
        return parse_time(self.metadata.get("creationTimestamp"))

    @property
    def has_ended(self) -> bool:
        """Whether it is complete, has failed, or is gone."""
        return self.is_deleted or self.outcome is not None

    def events_about(self, kind: str, name: str | None = None) -> Iterator[Event]:
        """Return the events about an object, or about all of a kind, the oldest first."""
        if name is not None:
            yield from self._events_of.get((kind, name), ())
            return
        for event in self.events or ():
            if event.about.kind == kind:
                yield event

    def log_of(self, pod: JsonObject, container: str) -> Sequence[str]:
        """Return the last lines of a container; none if they were not read."""
        return self.logs.get((pod["metadata"]["uid"], container), ())


def own_pod_specs(view: JobView, replica_type: str | None = None) -> Iterator[JsonObject]:
    """Yield the specs of pods that a job of `kubeflow.org/v1` has, of one type of replicas or of all."""
    for field_name, replicas in view.spec.items():
        if field_name.endswith("ReplicaSpecs") and isinstance(replicas, dict):
            for name, replica in replicas.items():
                if replica_type is None or name.lower() == replica_type.lower():
                    yield ((replica or {}).get("template") or {}).get("spec") or {}


def condition_since(condition: JsonObject) -> datetime | None:
    """Return since when a condition is as it is."""
    return parse_time(condition.get("lastTransitionTime"))


def role_of(pod: JsonObject) -> str:
    """Return what a pod is in its job: `rank 3`, `node 1 (ranks 2-3)`, `worker 0`; its name if nobody knows."""
    labels = pod["metadata"].get("labels") or {}
    if (node := rank_of(pod)) is not None:
        return node_title(node, ranks_of(pod, node))
    if REPLICA_TYPE_LABEL in labels:
        return f"{labels[REPLICA_TYPE_LABEL]} {labels.get(REPLICA_INDEX_LABEL, '')}".strip()
    if group := labels.get(REPLICATED_JOB_LABEL):
        numbers = [labels.get(label) or "0" for label in (JOB_INDEX_LABEL, COMPLETION_INDEX_ANNOTATION)]
        return " ".join([group, *(each for each in numbers if each != "0")])
    return str(pod["metadata"]["name"])


def trainmaster(view: JobView, verb: str, *options: str) -> str:
    """Return the command that does something with the job."""
    return shlex.join(["trainmaster", verb, _job(view), *options, "-n", view.namespace, *view.command_options])


def _job(view: JobView) -> str:
    return view.name if view.is_trainjob else f"{view.kind.lower()}/{view.name}"


def named_advice(view: JobView, advice: Sequence[str]) -> Sequence[str]:
    """Return what to do about a cause in general, with the job in its commands."""
    of_job = shlex.join([_job(view), "-n", view.namespace, *view.command_options])
    return tuple(line.replace("JOB", of_job) for line in advice)


def resource_field(view: JobView, name: str, *, limit: bool = False) -> str:
    """Return where a job says how much it asks for, or may use: an option of `trainmaster run` of what that made."""
    option = "memory-limit" if limit else _RESOURCE_OPTIONS.get(name)
    if view.is_made_by_run and option is not None:
        return f"--{option} of trainmaster run"
    fields = "spec.trainer.resourcesPerNode" if view.is_trainjob else "the resources of its pod template"
    return f"limits in {fields}" if limit else fields


def nodes_field(view: JobView) -> str:
    """Return where a job says how many nodes it has."""
    if view.is_made_by_run:
        return "--nodes of trainmaster run"
    return "spec.trainer.numNodes" if view.is_trainjob else "replicas"


def kubectl(view: JobView, *words: str, namespaced: bool = True) -> str:
    """Return a command of kubectl, in the namespace of the job or in none but what the words name."""
    where = ["-n", view.namespace] if namespaced else []
    return shlex.join(["kubectl", *words, *where, *view.command_options])
