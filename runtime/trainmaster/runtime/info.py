"""Info and PodSet: what plugins see of a TrainJob while it is being resolved.

An `Info` belongs to one resolution: plugins may change it and the trees that hang off it as they like, nothing of it
survives the resolution, nor is it seen by that of another TrainJob. The pod sets are views into `Info.template`, so
whatever a plugin changes in a container is in the JobSet that comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

import orjson

from trainmaster.runtime.api.constants import ANCESTOR_LABEL, NODE, TRAINER_ANCESTOR
from trainmaster.runtime.api.resilience import ResiliencePolicy
from trainmaster.runtime.api.scheduling import Scheduling
from trainmaster.runtime.api.trainingruntime import MLPolicy, PodGroupPolicy
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS, Listers
from trainmaster.runtime.resource_requirements import gpu_count


@dataclass(frozen=True, slots=True)
class Endpoints(Sequence[str]):
    """The host names of all pods of a ReplicatedJob in rank order, each made when it is asked for.

    They are never all in memory: `numNodes` is whatever a user wrote. Whoever writes them out has to set a limit.
    """

    prefix: str
    """What all names begin with, up to the index of the Job."""

    subdomain: str
    """What all names end with."""

    jobs: int
    """Jobs of the ReplicatedJob."""

    pods: int
    """Pods per Job."""

    def __len__(self) -> int:
        return self.jobs * self.pods

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        ranks = range(len(self))[index]
        return self._name(ranks) if isinstance(ranks, int) else [self._name(rank) for rank in ranks]

    def _name(self, rank: int) -> str:
        job, pod = divmod(rank, self.pods)
        return f"{self.prefix}-{job}-{pod}.{self.subdomain}"


@dataclass(slots=True)
class PodSet:
    """The pods of one ReplicatedJob."""

    name: str
    """Name of the ReplicatedJob."""

    ancestor: str | None
    """The step that the ReplicatedJob plays: trainer, dataset-initializer, model-initializer, or nothing known."""

    count: int
    """Pods per Job; becomes both parallelism and completions."""

    replicas: int
    """Jobs of the ReplicatedJob; of the trainer, each is a slice."""

    job_template: JsonObject
    """The batch/v1 JobTemplateSpec, a part of `Info.template`."""

    endpoints: Sequence[str] = ()
    """Host names of all pods, in rank order; known after the enforce phases."""

    min_size: int | None = None
    """Of an elastic trainer: how few pods may start together; None: all."""

    claimed_gpus: int = 0
    """GPUs that resource claims give the container `node`, as far as the cluster is known."""

    @property
    def size(self) -> int:
        """All pods: of all Jobs together."""
        return self.count * self.replicas

    @property
    def gpus(self) -> int:
        """GPUs of the container `node`: those of its resources, else those of its claims."""
        return gpu_count((self.container(NODE) or {}).get("resources") or {}) or self.claimed_gpus

    @property
    def pod_template(self) -> JsonObject:
        """The PodTemplateSpec."""
        template: JsonObject = self.job_template["spec"]["template"]
        return template

    @property
    def pod_spec(self) -> JsonObject:
        """The PodSpec."""
        spec: JsonObject = self.pod_template["spec"]
        return spec

    def container(self, name: str) -> JsonObject | None:
        """Find a main container by name."""
        return _named(self.job_template["spec"]["template"]["spec"].get("containers") or [], name)

    def any_container(self, name: str) -> JsonObject | None:
        """Find a container by name, main containers before init containers."""
        return self.container(name) or _named(self.pod_spec.get("initContainers") or [], name)


@dataclass(slots=True)
class Info:
    """A TrainJob and its runtime, merged: the working state of one resolution."""

    labels: dict[str, str]
    """Labels of the JobSet: of the runtime's template, then of the runtime patches."""

    annotations: dict[str, str]
    """Annotations of the JobSet, likewise."""

    ml_policy: MLPolicy | None
    """The runtime's; None if it has none."""

    pod_group_policy: PodGroupPolicy | None
    """The runtime's; None if it has none."""

    scheduling: Scheduling | None
    """The runtime's; None if it has none."""

    resilience_policy: ResiliencePolicy | None
    """That of the TrainJob, laid over the runtime's; None if neither has one."""

    template: JsonObject
    """The JobSetSpec with all runtime patches merged in."""

    _runtime_text: bytes
    """The JSON of `runtime_template`, which few need decoded."""

    pod_sets: list[PodSet]
    """One for each ReplicatedJob, in the order of the template."""

    trainer_command: list[str] | None = None
    """The command of the trainer container when a framework rewrites the TrainJob's; None leaves that alone."""

    listers: Listers = NO_LISTERS
    """The cluster, for plugins whose enforcing depends on what there is."""

    _runtime_template: JsonObject | None = field(default=None, init=False, repr=False)

    @property
    def runtime_template(self) -> JsonObject:
        """The JobSetSpec of the runtime before any patch: what the owner of the TrainJob has not asked for."""
        if self._runtime_template is None:
            self._runtime_template = orjson.loads(self._runtime_text)
        return self._runtime_template

    @runtime_template.setter
    def runtime_template(self, template: JsonObject) -> None:
        self._runtime_template = template

    def with_ancestor(self, ancestor: str) -> Iterator[PodSet]:
        """Iterate over the pod sets that play a step."""
        return (pods for pods in self.pod_sets if pods.ancestor == ancestor)

    def pod_set(self, name: str) -> PodSet | None:
        """Find a pod set by the name of its ReplicatedJob."""
        for pods in self.pod_sets:
            if pods.name == name:
                return pods
        return None

    @property
    def trainer(self) -> PodSet | None:
        """The first pod set that plays the trainer."""
        for pods in self.pod_sets:
            if pods.ancestor == TRAINER_ANCESTOR:
                return pods
        return None

    @property
    def trainer_container(self) -> JsonObject | None:
        """The container in which training runs: the one called `node` of the trainer."""
        trainer = self.trainer
        return trainer.container(NODE) if trainer else None

    @property
    def trainer_resources(self) -> JsonObject:
        """What that container gets: ResourceRequirements of the runtime with the TrainJob's laid over them."""
        resources: JsonObject = (self.trainer_container or {}).get("resources") or {}
        return resources

    @property
    def trainer_gpus(self) -> int:
        """GPUs of that container, whether they come from its resources or from claims."""
        trainer = self.trainer
        return trainer.gpus if trainer else 0

    def is_node(self, pods: PodSet) -> bool:
        """Tell whether a pod set trains: that of the trainer, but with MPI the nodes rather than a mere launcher."""
        mpi = self.ml_policy.mpi if self.ml_policy else None
        is_trainer = pods.ancestor == TRAINER_ANCESTOR
        if mpi is None or self.pod_set(NODE) is None:
            return is_trainer
        return pods.name == NODE or (is_trainer and mpi.run_launcher_as_node)

    def takes_part(self, pods: PodSet) -> bool:
        """Tell whether a pod set takes part in the training: as a node, or as the launcher of nodes."""
        return pods.ancestor == TRAINER_ANCESTOR or self.is_node(pods)

    def works_through(self, pods: PodSet) -> bool:
        """Tell whether a pod set works through a list: it completes more pods than run at the same time.

        Those that take part in the training never do: all of them run at once, however many a TrainJob asks for.
        """
        job_spec = pods.job_template["spec"]
        completions: int = job_spec.get("completions", 0)
        return not self.takes_part(pods) and completions > max(job_spec.get("parallelism", 1), 1)

    def subdomain(self, job_name: str) -> str:
        """The DNS subdomain of all pods: the template's, or the name of the JobSet."""
        network = self.template.get("network") or {}
        return network.get("subdomain") or job_name


def ancestor_of(replicated_job: JsonObject) -> str | None:
    """Read the step that a ReplicatedJob plays from the labels of its Job template."""
    metadata = (replicated_job.get("template") or {}).get("metadata") or {}
    ancestor: str | None = (metadata.get("labels") or {}).get(ANCESTOR_LABEL)
    return ancestor


def _named(containers: list[JsonObject], name: str) -> JsonObject | None:
    for container in containers:
        if container.get("name") == name:
            return container
    return None
