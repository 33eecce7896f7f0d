"""Torch: everything that torchrun and torch.distributed need to find each other.

The trainer container gets the PET_* environment that torchrun reads, and the rendezvous port. Processes per node follow
`trainer.numProcPerNode`, else the GPUs of the container (torchrun counts them itself), else its CPUs.
"""

from __future__ import annotations

from trainmaster.runtime.api import TorchPolicy, TrainJob
from trainmaster.runtime.api.constants import (
    NODE,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_NNODES,
    PET_NODE_RANK,
    PET_NPROC_PER_NODE,
    TRAINER_PORT,
)
from trainmaster.runtime.extension import Rejected
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspecs import env_completion_index, env_value, upsert_env, upsert_ports
from trainmaster.runtime.resources import cpu_count, gpu_count


class Torch:
    """Serves `mlPolicy.torch`."""

    name = "Torch"
    policies = ("torch",)

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Set the number of nodes and inject the PET_* environment."""
        policy = info.ml_policy.torch if info.ml_policy else None
        nodes = info.trainer
        if policy is None or nodes is None:
            return
        trainer = job.spec.trainer
        if trainer and trainer.num_nodes is not None:
            nodes.count = trainer.num_nodes
        environment = _environment(info, nodes, job)
        container = info.trainer_container
        if container is not None:
            # The user's variables come first, so that theirs keep the order they were written in.
            upsert_env(container, trainer.env if trainer else [])
            upsert_env(container, environment)
            upsert_ports(container, [{"containerPort": TRAINER_PORT}])
        _inject(info, policy, environment)


def _environment(info: Info, nodes: PodSet, job: TrainJob) -> list[JsonObject]:
    job_name = job.metadata.name
    return [
        env_value(PET_NNODES, nodes.count),
        env_value(PET_NPROC_PER_NODE, _processes_per_node(info, job)),
        env_completion_index(PET_NODE_RANK),
        # Rank 0 is the first pod of the trainer, whatever its ReplicatedJob and the subdomain are called.
        env_value(PET_MASTER_ADDR, f"{job_name}-{nodes.name}-0-0.{info.subdomain(job_name)}"),
        env_value(PET_MASTER_PORT, TRAINER_PORT),
    ]


def _processes_per_node(info: Info, job: TrainJob) -> int | str:
    if job.spec.trainer and job.spec.trainer.num_proc_per_node is not None:
        return job.spec.trainer.num_proc_per_node
    # What the container really gets counts, whether it comes from the runtime or the TrainJob.
    resources = (info.trainer_container or {}).get("resources") or {}
    if gpu_count(resources):
        return "auto"
    return max(1, cpu_count(resources))


def _inject(info: Info, policy: TorchPolicy, environment: list[JsonObject]) -> None:
    """Give side containers that the runtime names the same environment (KEP-3416)."""
    for target in policy.env_injection.targets if policy.env_injection else []:
        pods = info.pod_set(target.job_name)
        for name in target.container_names:
            container = pods.any_container(name) if pods and name != NODE else None
            if container is None:
                raise Rejected(
                    f'envInjection target podSet "{target.job_name}" container "{name}" not found in runtime template'
                )
            upsert_env(container, environment)
