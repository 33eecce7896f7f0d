"""The kinds of jobs that the benchmark knows: what it creates, waits for and reports of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from bench import samples
from trainmaster.controller.kube.rest.resources import PODS, Resource
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, TRAINJOBS
from trainmaster.devcluster.crds.install import (
    JOBSET_DEFINITIONS,
    TRAINER_DEFINITIONS,
    TRAINING_OPERATOR_DEFINITIONS,
)
from trainmaster.runtime.jobs.constants import JOB_NAME_LABEL
from trainmaster.runtime.jsontree import JsonObject

_PYTORCHJOBS: Final = Resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", namespaced=True)


@dataclass(frozen=True)
class TrainJobs:
    """TrainJobs of two nodes, whose JobSets report at once that they run and have completed."""

    kind: str = "TrainJob"
    jobs: int = 1000
    prefix: str = ""
    resource: Resource = TRAINJOBS
    built: Resource = JOBSETS
    built_each: int = 1
    completed: str = "Complete"
    needs: tuple[Resource, ...] = (JOBSETS, TRAINJOBS, CLUSTER_TRAINING_RUNTIMES)
    definitions: tuple[str, ...] = (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS)

    def job(self, number: int) -> JsonObject:
        """Build a TrainJob."""
        return samples.trainjob(number)

    def job_of(self, built: JsonObject) -> str:
        """Return the name of the TrainJob, which is that of the JobSet."""
        name: str = built["metadata"]["name"]
        return name

    def reports(self, number: int) -> Iterator[Mapping[str, JsonObject]]:
        """Yield what a JobSet controller reports."""
        yield {samples.job_name(number): samples.running()}
        yield {samples.job_name(number): samples.completed()}

    def cluster_objects(self) -> Iterator[tuple[Resource, JsonObject]]:
        """Yield the runtime."""
        yield CLUSTER_TRAINING_RUNTIMES, samples.runtime()


@dataclass(frozen=True)
class PyTorchJobs:
    """PyTorchJobs of a master and three workers, whose pods report that they run and have succeeded."""

    kind: str = "PyTorchJob"
    jobs: int = 2000
    prefix: str = "pytorchjob."
    resource: Resource = _PYTORCHJOBS
    built: Resource = PODS
    built_each: int = 1 + samples.WORKERS
    completed: str = "Succeeded"
    needs: tuple[Resource, ...] = (_PYTORCHJOBS, JOBSETS, TRAINJOBS, CLUSTER_TRAINING_RUNTIMES)
    """The manager is not ready without those of TrainJobs."""

    definitions: tuple[str, ...] = (*JOBSET_DEFINITIONS, *TRAINER_DEFINITIONS, *TRAINING_OPERATOR_DEFINITIONS)

    def job(self, number: int) -> JsonObject:
        """Build a PyTorchJob."""
        return samples.pytorchjob(number)

    def job_of(self, built: JsonObject) -> str:
        """Return the name of the PyTorchJob of a pod."""
        name: str = built["metadata"]["labels"][JOB_NAME_LABEL]
        return name

    def reports(self, number: int) -> Iterator[Mapping[str, JsonObject]]:
        """Yield what kubelets report, each on a node of its own: first that all pods run, then that they have ended."""
        job = samples.job_name(number)
        pods = [f"{job}-master-0", *(f"{job}-worker-{index}" for index in range(samples.WORKERS))]
        for phase in ("Running", "Succeeded"):
            yield {pod: samples.pod_status(phase) for pod in pods}

    def cluster_objects(self) -> Iterator[tuple[Resource, JsonObject]]:
        """Yield nothing: a PyTorchJob says all itself."""
        yield from ()


Workload: TypeAlias = TrainJobs | PyTorchJobs
"""A kind of jobs."""

WORKLOADS: Final[Mapping[str, Workload]] = MappingProxyType({each.kind: each for each in (TrainJobs(), PyTorchJobs())})
"""By kind."""
