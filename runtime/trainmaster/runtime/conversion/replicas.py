"""The pods of a V1 job, as written, and how they are grouped into the ReplicatedJobs of a JobSet.

Restarts: what a replica type's restart policy and the job's backoffLimit are in the words of a Kubernetes Job.

| restartPolicy | pod | Job |
|---|---|---|
| Always, OnFailure | OnFailure | restarts without end, or up to backoffLimit |
| Never | Never | fails with the first pod |
| ExitCode | Never | fails with exit codes 1 to 127, makes the pod again after others, up to backoffLimit |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.runtime.conversion.notes import ConversionError, Notes
from trainmaster.runtime.conversion.source import Source
from trainmaster.runtime.jobs.constants import ALWAYS, EXIT_CODE, NEVER, ON_FAILURE
from trainmaster.runtime.jobs.defaulting import canonical_type
from trainmaster.runtime.jobs.interface import Job
from trainmaster.runtime.jsontree import JsonObject

MAX_PODS: Final = 10_000
"""Of one job. Each has a name in the variables of all others; these would not fit into an object any more."""

ENDLESS: Final = 2**31 - 1
"""The backoffLimit of a Job that never gives up: an absent one would mean 6."""

PERMANENT_EXIT_CODES: Final = range(1, 128)
"""After which V1 does not try again under the policy ExitCode."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of one type."""

    type: str
    count: int
    restart_policy: str
    template: JsonObject
    path: str
    """For instance `spec.pytorchReplicaSpecs.Worker`."""

    @property
    def word(self) -> str:
        """The type as it stands in names and labels."""
        return self.type.lower()

    @property
    def containers(self) -> list[JsonObject]:
        """The containers of its pods."""
        found: list[JsonObject] = self.template["spec"]["containers"]
        return found

    def place_of(self, name: str) -> int | None:
        """Return the place of a container."""
        return next((place for place, each in enumerate(self.containers) if each.get("name") == name), None)


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that are the same but for their index: a ReplicatedJob."""

    name: str
    members: Sequence[tuple[Replicas, range]]
    """The replicas of V1 that are in it, in the order of their new indexes."""

    main: int = 0
    """The place of the container that trains."""

    is_node: bool = False
    """Whether that container is called `node`."""

    is_trainer: bool = False
    """Whether the TrainJob's `trainer` speaks of it."""

    is_spread: bool = False
    """Whether each pod is a Job of its own, so that pods know their index among all of the JobSet."""

    @property
    def replicas(self) -> Replicas:
        """Those whose template all members have."""
        return self.members[0][0]

    @property
    def count(self) -> int:
        """How many pods it has."""
        return sum(len(indexes) for _, indexes in self.members)


def read_replicas(source: Source, job: Job) -> list[Replicas]:
    """Read the replicas of a valid job, in the order of their types."""
    written = {canonical_type(job.kind, name, dict.fromkeys(source.names)): source.part(name) for name in source.names}
    return [
        Replicas(type_, replicas.replicas, replicas.restart_policy, _template(written[type_]), written[type_].path)
        for type_, replicas in job.replica_specs.items()
    ]


def check_size(job: Job) -> None:
    """Check that a job has pods, and not too many.

    Raises:
        ConversionError: It is not so.
    """
    path = f"spec.{job.kind.replica_specs_field}"
    if job.replica_specs and not any(each.replicas for each in job.replica_specs.values()):
        raise ConversionError(path, "has no replicas; a TrainJob has one node at least, and can be suspended")
    if job.total_replicas > MAX_PODS:
        raise ConversionError(path, f"has {job.total_replicas} pods; a job is converted if it has {MAX_PODS} or fewer")


def _template(source: Source) -> JsonObject:
    for field in ("replicas", "restartPolicy"):
        source.take(field, object)
    return source.take("template", dict) or {}


def new_names(job: Job, jobset: str, groups: Iterable[Group]) -> dict[str, str]:
    """Return the new host name of each pod, by its old name."""
    names = {}
    for group in groups:
        new = 0
        for replicas, indexes in group.members:
            for index in indexes:
                place = f"{new}-0" if group.is_spread else f"0-{new}"
                names[job.kind.pod_name(job, replicas.type, index)] = f"{jobset}-{group.name}-{place}.{jobset}"
                new += 1
    return names


def job_spec(policy: str, backoff_limit: int | None, container: str) -> JsonObject:
    """Return the fields of a Job by which its pods are restarted as those of V1.

    Args:
        backoff_limit: That of the job, if it has one.
    """
    if policy == NEVER:
        return {"backoffLimit": 0}
    spec: JsonObject = {"backoffLimit": ENDLESS if backoff_limit is None else backoff_limit}
    if policy == EXIT_CODE:
        codes = {"containerName": container, "operator": "In", "values": list(PERMANENT_EXIT_CODES)}
        spec["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    return spec


def pod_restart_policy(policy: str) -> str:
    """Return the restart policy of the pods."""
    return ON_FAILURE if policy in (ALWAYS, ON_FAILURE) else NEVER


def tell_restarts(policy: str, backoff_limit: int | None, path: str, notes: Notes) -> None:
    """Tell where a Job differs."""
    if policy == ALWAYS:
        notes.lose(path, "becomes OnFailure: a Job cannot start a container again that has ended well")
    if policy == NEVER and backoff_limit:
        notes.tell("spec.runPolicy.backoffLimit", f"does not count for {path}: Never, where the first failure is final")
