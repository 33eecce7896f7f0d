"""Torch: everything that torchrun and torch.distributed need to find each other.

The trainer container gets the PET_* environment that torchrun reads, and the rendezvous port. How many processes run
on each node is said by `trainer.numProcPerNode`, else by the runtime's `mlPolicy.torch.numProcPerNode`:

- a number is that number;
- `gpu` lets torchrun count the GPUs that it finds;
- `cpu` is one for each CPU of the container (torchrun would count those of the machine);
- `auto`, the default, is as many as torchrun finds GPUs if the container has any, else one for each other accelerator,
  else as `cpu`.

With `elasticPolicy` the nodes meet by torchrun's dynamic rendezvous at the first pod, and their number may change.

A TrainJob whose command is `tune run` is fine-tuned with torchtune, see `trainmaster.plugins.torchtune`.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.plugins import torchtune
from trainmaster.runtime.api.constants import (
    ELASTIC_ANNOTATION,
    ELASTIC_RESERVED_ENV,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_MAX_RESTARTS,
    PET_NNODES,
    PET_NODE_RANK,
    PET_NPROC_PER_NODE,
    PET_RDZV_BACKEND,
    PET_RDZV_ENDPOINT,
    PET_RDZV_ID,
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE,
    TORCH_RESERVED_ENV,
)
from trainmaster.runtime.api.trainingruntime import EnvInjectionTarget, TorchPolicy
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.elastic import Limits, elastic_limits, elastic_problems
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework.interface import Rejected
from trainmaster.runtime.info import Info
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Listers
from trainmaster.runtime.podspec import env_value, upsert_env
from trainmaster.runtime.rendezvous import (
    Rendezvous,
    check_process_count,
    has_command,
    join,
    node_count,
    rendezvous,
    reserved_env,
    set_node_count,
    unreachable,
)
from trainmaster.runtime.resource_requirements import accelerator_count, cpu_count


class Torch:
    """Serves `mlPolicy.torch`."""

    name = "torch"
    policies = ("torch",)

    def enforce_ml_policy(self, info: Info, job: TrainJob) -> None:
        """Set the number of nodes, inject the PET_* environment, and complete a torchtune command."""
        policy = _policy(info)
        if policy is None:
            return
        check_process_count(job, policy.num_proc_per_node)
        limits = elastic_limits(info.ml_policy, job)
        for problem in elastic_problems(info, job, node_count(info, job)):
            raise Rejected(str(problem))
        set_node_count(info, job)
        meeting = rendezvous(info, job)
        if meeting is None:
            return
        processes = _processes_per_node(info, policy, job)
        if limits is not None and info.trainer is not None:
            info.annotations[ELASTIC_ANNOTATION] = str(limits)
            info.trainer.min_size = limits.min_nodes
            size, master = _elastic(job, limits, meeting, processes), list[JsonObject]()
        else:
            size = [
                env_value(PET_NNODES, meeting.nodes),
                env_value(PET_NPROC_PER_NODE, processes),
                *meeting.rank(PET_NODE_RANK),
            ]
            master = [env_value(PET_MASTER_ADDR, meeting.host), env_value(PET_MASTER_PORT, meeting.port)]
            master += meeting.megascale()
        if meeting.slices > 1 and not has_command(info, job):
            # Nobody can tell the nodes their rank. By this kind of rendezvous they agree on it among themselves.
            master += _dynamic_rendezvous(job, meeting)
        # The user's variables come first, so that theirs keep the order they were written in.
        users = job.spec.trainer.env if job.spec.trainer else []
        if torchtune.is_asked_for(job):
            # The command names the rendezvous itself.
            info.trainer_command = torchtune.command(info, job, meeting, processes)
            join(info, job, meeting, [*users, *size], rank=PET_NODE_RANK)
        else:
            join(info, job, meeting, [*users, *size, *master], rank=PET_NODE_RANK)
        for target in _targets(policy):
            _inject(info, target, meeting, [*size, *master])

    def validate(
        self, info: Info, job: TrainJob, old: TrainJob | None, listers: Listers
    ) -> Iterator[FieldError | FieldWarning]:
        """Check the runtime's injection targets, the user's variables and what torchtune can do."""
        policy = _policy(info)
        if policy is None:
            return
        for target in _targets(policy):
            for name in target.container_names:
                if _target_container(info, target, name) is None:
                    yield FieldError("spec.runtimeRef", _not_found(target, name), value=target.to_json())
        is_elastic = elastic_limits(info.ml_policy, job) is not None
        yield from reserved_env(job, TORCH_RESERVED_ENV | ELASTIC_RESERVED_ENV if is_elastic else TORCH_RESERVED_ENV)
        if is_elastic:
            yield from _check_command(job)
        if torchtune.is_asked_for(job):
            yield from torchtune.validate(info, job, _processes_per_node(info, policy, job))
        if job.spec.trainer and job.spec.trainer.args and not has_command(info, job):
            detail = (
                "nothing says what to run with them but the entrypoint of the image: no runtime starts torchrun by "
                "itself; set spec.trainer.command, for instance to [torchrun]"
            )
            yield FieldWarning("spec.trainer.args", detail)
        yield from unreachable(info, job)


def _dynamic_rendezvous(job: TrainJob, meeting: Rendezvous) -> list[JsonObject]:
    return [
        env_value(PET_RDZV_BACKEND, "c10d"),
        env_value(PET_RDZV_ENDPOINT, meeting.address),
        env_value(PET_RDZV_ID, job.metadata.name),
    ]


def _elastic(job: TrainJob, limits: Limits, meeting: Rendezvous, processes: int | str) -> list[JsonObject]:
    """Build the variables by which nodes agree on their number and ranks; none of them changes with their number.

    A rank of its own would be wrong as soon as a node leaves, and the master is chosen by the rendezvous.
    """
    restarts = [] if limits.max_restarts is None else [env_value(PET_MAX_RESTARTS, limits.max_restarts)]
    size = [env_value(PET_NNODES, str(limits)), env_value(PET_NPROC_PER_NODE, processes)]
    # Otherwise torchrun, as of PyTorch 2.13, never tells a node that joins later where the store of the others is.
    own_store = env_value(TORCH_DISABLE_SHARE_RDZV_TCP_STORE, 1)
    return [*size, *_dynamic_rendezvous(job, meeting), own_store, *restarts]


def _check_command(job: TrainJob) -> Iterator[FieldError | FieldWarning]:
    """Check that the command of an elastic job leaves its size and its rendezvous to the environment."""
    if torchtune.is_asked_for(job):
        detail = "torchtune trains on a fixed number of nodes, but the job has an elasticPolicy"
        yield FieldError("spec.trainer.command", detail, "Forbidden")
    trainer = job.spec.trainer
    words = [*(trainer.command or ()), *(trainer.args or ())] if trainer else []
    if any(word.partition("=")[0] in ("--nnodes", "--node-rank", "--node_rank") for word in words):
        detail = "--nnodes and --node-rank of torchrun win over elasticPolicy, so the size would be fixed; remove them"
        yield FieldWarning("spec.trainer.command", detail)


def _policy(info: Info) -> TorchPolicy | None:
    return info.ml_policy.torch if info.ml_policy else None


def _processes_per_node(info: Info, policy: TorchPolicy, job: TrainJob) -> int | str:
    asked: int | str | None = job.spec.trainer.num_proc_per_node if job.spec.trainer else None
    if asked is None:
        asked = policy.num_proc_per_node or "auto"
    # What the container really gets counts, whether it comes from the runtime or the TrainJob.
    resources = info.trainer_resources
    if asked == "auto" and not info.trainer_gpus:
        return accelerator_count(resources) or max(1, cpu_count(resources))
    if asked == "cpu":
        return max(1, cpu_count(resources))
    return asked


def _targets(policy: TorchPolicy) -> list[EnvInjectionTarget]:
    return policy.env_injection.targets if policy.env_injection else []


def _inject(info: Info, target: EnvInjectionTarget, meeting: Rendezvous, environment: list[JsonObject]) -> None:
    """Give side containers that the runtime names the same environment (KEP-3416)."""
    for name in target.container_names:
        container = _target_container(info, target, name)
        if container is None:
            raise Rejected(_not_found(target, name))
        upsert_env(container, environment)
        meeting.give_rank(container, PET_NODE_RANK)


def _target_container(info: Info, target: EnvInjectionTarget, name: str) -> JsonObject | None:
    pods = info.pod_set(target.job_name)
    return pods.any_container(name) if pods else None


def _not_found(target: EnvInjectionTarget, name: str) -> str:
    return f'envInjection target podSet "{target.job_name}" container "{name}" not found in runtime template'
