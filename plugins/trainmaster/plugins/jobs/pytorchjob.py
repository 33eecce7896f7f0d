"""PyTorchJob: torch.distributed and torchrun.

With a Master, torch.distributed is told where the master is, and torchrun likewise by its own variables (PET_*). A job
with an elastic policy meets at its first worker instead, by torchrun's dynamic rendezvous. As in the Training Operator
V1 the variables are those of a node, which torchrun makes those of processes of (V1-B15): RANK is the rank of the node,
while WORLD_SIZE counts processes where `nprocPerNode` is a number. A program that torchrun does not start has one
process on each node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from trainmaster.plugins.jobs.elastic import PATH as ELASTIC
from trainmaster.plugins.jobs.elastic import ElasticPolicy
from trainmaster.plugins.jobs.initcontainer import InitContainerOptions, InitContainers
from trainmaster.runtime.api.constants import (
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_NNODES,
    PET_NODE_RANK,
    PET_NPROC_PER_NODE,
)
from trainmaster.runtime.api.decoding import parse_part
from trainmaster.runtime.api.meta import ApiModel
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.jobs.constants import MASTER, ON_FAILURE, WORKER
from trainmaster.runtime.jobs.interface import Job, JobKind
from trainmaster.runtime.jobs.pods import training_port
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers, Watch
from trainmaster.runtime.podspec import append_env_of_all, env_value

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,9}")
_PROCESSES: Final = re.compile(r"auto|cpu|gpu|xpu|\+?0*[1-9][0-9]*")
"""What torchrun takes for --nproc-per-node on every machine."""

_HPA: Final = ("autoscaling/v2", "HorizontalPodAutoscaler")


class PyTorchJobSpec(ApiModel):
    """What only the spec of a PyTorchJob has."""

    elastic_policy: ElasticPolicy | None = None

    nproc_per_node: str | None = None
    """How many processes train on each node: auto, cpu, gpu, or a number."""


class PyTorchJob(JobKind):
    """Serves PyTorchJobs."""

    kind = "PyTorchJob"
    plural = "pytorchjobs"
    framework = "pytorch"
    replica_specs_field = "pytorchReplicaSpecs"
    replica_types = (MASTER, WORKER)
    leading_types = (MASTER, WORKER)
    container_name = "pytorch"
    port_name = "pytorchjob-port"
    port = 23456
    default_restart_policy = ON_FAILURE
    scale_type = WORKER
    options_model = InitContainerOptions

    def __init__(self, options: InitContainerOptions | None = None, **kwargs: Any) -> None:
        super().__init__(options, **kwargs)
        self._init_containers = InitContainers(options or InitContainerOptions())

    def default(self, job: Job) -> None:
        """Fill in the limits of an elastic policy, and how many processes a node has."""
        spec = _spec(job)
        if spec.elastic_policy is not None:
            workers = job.replicas(WORKER) if WORKER in job.replica_specs else None
            job.spec["elasticPolicy"] = spec.elastic_policy.with_limits(workers).to_json()
        if spec.nproc_per_node is None and (spec.elastic_policy is None or spec.elastic_policy.n_proc_per_node is None):
            job.spec["nprocPerNode"] = "auto"

    def validate(self, job: Job, old: Job | None) -> Iterator[FieldError | FieldWarning]:
        """Check the elastic policy, and how many replicas there are; a Master need not say that it is one (V1-B16)."""
        path = f"spec.{self.replica_specs_field}"
        elastic, processes = _spec(job).elastic_policy, _spec(job).nproc_per_node
        if processes is not None and not _PROCESSES.fullmatch(processes):
            known = "a number from 1 on, auto, cpu, gpu and xpu"
            detail = f'torchrun knows {known}, and fails unless "{processes}" is the name of a type of devices'
            yield FieldWarning("spec.nprocPerNode", detail)
        if elastic is not None:
            if WORKER not in job.replica_specs:
                yield FieldError(f"{path}[{WORKER}]", "must be configured if elastic policy is used", "Required")
            if elastic.n_proc_per_node is not None:
                yield FieldWarning(f"{ELASTIC}.nProcPerNode", "is deprecated, use spec.nprocPerNode instead")
                if job.spec.get("nprocPerNode") is not None:
                    detail = "must not be used with spec.nprocPerNode"
                    yield FieldError(f"{ELASTIC}.nProcPerNode", detail, "Forbidden")
            yield from elastic.impossible_limits()
            if elastic.metrics is not None and self._lacks_workers(job):
                detail = "is not given, so that the autoscaler takes the job for one of 0 workers and leaves it alone"
                yield FieldWarning(f"{path}[{WORKER}].replicas", detail)
        for replica_type, replica in job.replica_specs.items():
            if replica_type == MASTER and replica.replicas != 1:
                yield FieldError(f"{path}[{MASTER}].replicas", "must be 1", "Forbidden")
            elif replica.replicas < 1:
                yield FieldError(f"{path}[{replica_type}].replicas", "must be at least 1", "Forbidden")

    def _lacks_workers(self, job: Job) -> bool:
        """Tell whether the number of workers is a default, of which the API server does not know (V1-B16)."""
        stored = job.raw["spec"].get(self.replica_specs_field) or {}
        return all((each or {}).get("replicas") is None for name, each in stored.items() if name.lower() == "worker")

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        """Give all containers the environment, and workers of a master what waits for it."""
        spec = pod["spec"]
        append_env_of_all(spec, list(self._environment(job, replica_type, index)))
        if replica_type == WORKER and MASTER in job.replica_specs:
            training: JsonObject = next(
                (each for each in spec["containers"] if each["name"] == self.container_name), {}
            )
            waiting = self._init_containers.build(self.pod_name(job, MASTER, 0), training)
            spec["initContainers"] = [*(spec.get("initContainers") or []), *waiting]

    def _environment(self, job: Job, replica_type: str, index: int) -> Iterator[JsonObject]:
        spec = _spec(job)
        yield env_value("PYTHONUNBUFFERED", 1)
        if MASTER in job.replica_specs:
            port = training_port(job, MASTER)
            address = self.pod_name(job, MASTER, 0)
            rank = index if replica_type == MASTER else index + 1
            yield env_value("MASTER_PORT", port)
            yield env_value(PET_MASTER_PORT, port)
            yield env_value("MASTER_ADDR", address)
            yield env_value(PET_MASTER_ADDR, address)
            yield env_value("WORLD_SIZE", job.total_replicas * _processes(spec.nproc_per_node))
            yield env_value("RANK", rank)
            yield env_value(PET_NODE_RANK, rank)
        if spec.nproc_per_node is not None:
            yield env_value(PET_NPROC_PER_NODE, spec.nproc_per_node)
        if spec.elastic_policy is None:
            yield env_value(PET_NNODES, job.total_replicas)
        else:
            yield from spec.elastic_policy.environment(job)

    def build(self, job: Job, pods: Sequence[JsonObject], listers: Listers) -> Iterable[JsonObject]:
        """Build the HorizontalPodAutoscaler of a job that is scaled by metrics; it ends with the job (V1-B23)."""
        elastic = _spec(job).elastic_policy
        if elastic is None or elastic.metrics is None:
            return []
        api_version, kind = _HPA
        spec = {
            "scaleTargetRef": {"apiVersion": self.api_version, "kind": self.kind, "name": job.name},
            "minReplicas": elastic.min_replicas,
            "maxReplicas": elastic.max_replicas,
            # In the place of none the API server puts its own, which an empty list would be at odds with for ever.
            **({"metrics": elastic.metrics} if elastic.metrics else {}),
        }
        return [{"apiVersion": api_version, "kind": kind, "metadata": {"name": job.name}, "spec": spec}]

    def watches(self) -> Iterable[Watch]:
        """Return the kind of what scales."""
        return [Watch(*_HPA, "horizontalpodautoscalers", writes=True, optional=True)]

    def has_succeeded(
        self, job: Job, replicas: Mapping[str, ReplicaStatus], pods: Mapping[str, Sequence[JsonObject]]
    ) -> bool:
        """Tell whether the master is done; without one, all workers, or one of those that are elastic."""
        elastic = job.spec.get("elasticPolicy") is not None and self.leading_type(job) == WORKER
        return super().has_succeeded(job, replicas, pods) or (elastic and replicas[WORKER].succeeded > 0)


def _spec(job: Job) -> PyTorchJobSpec:
    return parse_part(PyTorchJobSpec, job.spec, "spec")


def _processes(nproc_per_node: str | None) -> int:
    """Return how many processes a node has, if that is a number; those that torchrun counts count as one."""
    return int(nproc_per_node) if nproc_per_node and _NUMBER.fullmatch(nproc_per_node) else 1
