"""The conversion of one V1 job: to a TrainingRuntime, which has its pods, and a TrainJob of the same name.

A V1 job brings the whole of its pods along; a TrainJob takes them from a runtime. So a job becomes both. Where all its
pods are the same, they are the nodes of the trainer, and what users change from one job to the next (image, command,
variables, resources, number of nodes) stands in the TrainJob. Where they differ, there is a ReplicatedJob for each
kind of pod, and the TrainJob has nothing to say about them but the resources of those that lead. These are the trainer,
since the Kubeflow SDK reads no runtime, and so lists no runtime or TrainJob of a namespace, without a trainer that has
an image and, if it has limits, one of a device.

`JobConversion` knows the job. Its subclasses say what a kind has of its own: its fields, which pods are the same, the
variables that V1 gave them, and when the job has succeeded. `building` makes the objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import ClassVar, Final

from trainmaster.runtime.api.constants import NODE
from trainmaster.runtime.conversion.hosts import JOBSET_NAME, HostNames
from trainmaster.runtime.conversion.notes import Notes
from trainmaster.runtime.conversion.pod_template import depends_on_type
from trainmaster.runtime.conversion.reading import read_job
from trainmaster.runtime.conversion.replicas import Group, Replicas, new_names, read_replicas
from trainmaster.runtime.conversion.run_policy import convert_run_policy
from trainmaster.runtime.conversion.source import Source, convert_metadata, drop_status
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.pods import training_port
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_completion_index, env_field

TRAINER_FIELDS: Final = {
    "image": "image",
    "command": "command",
    "args": "args",
    "env": "env",
    "resources": "resourcesPerNode",
}
"""The fields of a container that a TrainJob can say, and what it calls them."""

_GLOBAL_INDEX_FIELD_PATH: Final = "metadata.annotations['jobset.sigs.k8s.io/job-global-index']"


class JobConversion:
    """Converts one job.

    Args:
        obj: The job; it is not changed.
        gang_scheduler: What Training Operator V1 runs with as `--gang-scheduler-name`.

    Raises:
        ConversionError: It is no job that Training Operator V1 would run.
    """

    kind: ClassVar[str]

    framework: ClassVar[str]
    """The label of its runtime."""

    is_ranked: ClassVar[bool] = False
    """Whether V1 gives a rank to each pod, whatever its type, so that a pod has to know its index among all of them."""

    sets_main_only: ClassVar[bool] = False
    """Whether V1 sets its variables in the container that trains alone."""

    def __init__(self, kind: JobKind, obj: JsonObject, *, gang_scheduler: str = "") -> None:
        self.job = read_job(kind, obj)
        self.gang_scheduler = gang_scheduler
        self.notes = Notes()
        self._source = Source(obj)
        for field in ("apiVersion", "kind"):
            self._source.take(field, str)
        self.metadata = convert_metadata(self._source.part("metadata"), self.notes)
        drop_status(self._source, self.notes)
        spec = self._source.part("spec")
        self.run_policy = convert_run_policy(spec.part("runPolicy"), self.notes)
        self.replicas = {each.type: each for each in read_replicas(spec.part(kind.replica_specs_field), self.job)}
        self.read(spec)
        self.groups = self.group()
        for each in self.replicas.values():
            if not each.count:
                self.notes.tell(each.path, "left out: there are no replicas of it")
        names = new_names(self.job, self.jobset, self.groups)
        self.hosts = HostNames(self.name, self.metadata.get("namespace", ""), names)

    def left(self) -> Iterable[str]:
        """Yield the paths of what nobody took."""
        return self._source.left()

    # What kinds say

    def read(self, spec: Source) -> None:
        """Read what only this kind has in its spec.

        Raises:
            ConversionError: A field has a value that means nothing.
        """

    def group(self) -> list[Group]:
        """Return which pods are the same: those of each type, or all of those that are ranked together."""
        present = self.present
        if self.is_ranked and len(present) > 1 and self.are_alike(present):
            return [self.node_group(present)]
        return [self.group_of(each) for each in present]

    def environment(self, group: Group) -> Iterable[JsonObject]:
        """Return the variables that V1 sets in the containers of a group."""
        return ()

    def ml_policy(self) -> JsonObject:
        """Return the `mlPolicy` of the runtime, but for the number of nodes."""
        return {}

    def processes(self) -> int | None:
        """Return the `numProcPerNode` of the trainer."""
        return None

    def reserved(self) -> frozenset[str]:
        """Return the names of variables of the trainer that the user cannot set, beside those of `environment`."""
        return frozenset()

    def complete(self, group: Group, pod_spec: JsonObject, path: str) -> None:
        """Change the pods of a group where this kind needs it."""

    def depends_on(self, group: Group) -> list[JsonObject]:
        """Return what a group waits for."""
        return []

    @property
    def nodes(self) -> int:
        """The number of nodes of the trainer."""
        return self.total

    @property
    def trainer_fields(self) -> Collection[str]:
        """The fields of the container that trains that the TrainJob can say."""
        return TRAINER_FIELDS

    def job_success(self, group: Group) -> JsonObject | None:
        """Return the success policy of a Job, if it need not be that all its pods succeed."""
        return None

    def successful(self) -> Sequence[str]:
        """Return the ReplicatedJobs with which the job has succeeded: those of the type that leads it."""
        leading = self.job.kind.leading_type(self.job)
        every = [each.name for each in self.groups]
        return [each.name for each in self.groups if each.replicas.type == leading] or every

    @property
    def leading(self) -> Replicas:
        """The replicas that lead the job: the nodes of the trainer, where the pods are several groups."""
        leading = self.job.kind.leading_type(self.job)
        return next((each for each in self.present if each.type == leading), self.present[0])

    # What kinds use

    @property
    def name(self) -> str:
        """The name of the job; nothing if it is generated."""
        name: str = self.metadata.get("name", "")
        return name

    @property
    def jobset(self) -> str:
        """The name of the JobSet, as values of variables can have it."""
        return self.name or f"$({JOBSET_NAME})"

    @property
    def present(self) -> list[Replicas]:
        """The replicas of which there are any."""
        return [each for each in self.replicas.values() if each.count]

    @property
    def total(self) -> int:
        """The number of pods."""
        return self.job.total_replicas

    @property
    def is_one_group(self) -> bool:
        """Whether all pods are the same: nodes of one trainer."""
        return len(self.groups) == 1

    def group_of(self, replicas: Replicas) -> Group:
        """Return the pods of one type as a group, the nodes of the trainer if there are no others."""
        alone = len(self.present) == 1
        return Group(
            name=NODE if alone else replicas.word,
            members=[(replicas, range(replicas.count))],
            main=self.main_container(replicas),
            is_node=replicas is self.leading,
            is_trainer=alone,
            is_spread=self.is_ranked and not alone,
        )

    def node_group(self, every: Sequence[Replicas]) -> Group:
        """Return the pods of several types as the nodes of one trainer."""
        members = [(each, range(each.count)) for each in every]
        first = every[0]
        for each in every[1:]:
            message = f"its pods are those of {first.type}, so all are nodes of one trainer, {first.type} first"
            self.notes.tell(f"{each.path}.template", message)
        return Group(NODE, members, main=self.main_container(every[0]), is_node=True, is_trainer=True)

    def main_container(self, replicas: Replicas) -> int:
        """Return the place of the container that trains."""
        return replicas.place_of(self.job.kind.container_name) or 0

    def are_alike(self, every: Sequence[Replicas]) -> bool:
        """Tell whether the pods of all these types are the same."""
        first = every[0]
        return all(
            each.template == first.template and each.restart_policy == first.restart_policy for each in every
        ) and not depends_on_type(first.template)

    def host(self, replicas: Replicas, index: int) -> str:
        """Return the new name of a pod."""
        return self.hosts[self.job.kind.pod_name(self.job, replicas.type, index)]

    def port(self, replicas: Replicas) -> int:
        """Return the port on which the pods of a type meet others."""
        return training_port(self.job, replicas.type)

    def rank(self, group: Group, name: str) -> JsonObject:
        """Return a variable with the index of a pod: in its group or, if that is spread, among all pods."""
        return env_field(name, _GLOBAL_INDEX_FIELD_PATH) if group.is_spread else env_completion_index(name)
