"""Rendezvous: how many nodes a trainer has, and how they find each other. What all plugins of frameworks share.

A node is a pod of the trainer. Rank 0 is its first pod, whatever the ReplicatedJob and the subdomain are called; the
other nodes reach it by name. A trainer may consist of several slices, see `trainmaster.runtime.multislice`: how many
nodes there are always means all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trainmaster.runtime.api.constants import (
    JOB_INDEX_FIELD_PATH,
    MEGASCALE_COORDINATOR_ADDRESS,
    MEGASCALE_NUM_SLICES,
    MEGASCALE_SLICE_ID,
    TRAINER_PORT,
)
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.field_errors import FieldError, FieldWarning
from trainmaster.runtime.framework.interface import Rejected
from trainmaster.runtime.info import Info, PodSet
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.multislice import PLACE, SlicesInvalid, hosts_per_slice, ranked
from trainmaster.runtime.podspec import env_completion_index, env_field, env_value, upsert_env, upsert_ports


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the nodes of a trainer meet."""

    nodes: int
    """How many take part."""

    host: str
    """The name of rank 0."""

    port: int = TRAINER_PORT
    """The port of rank 0, on which it listens."""

    slices: int = 1
    """Over how many slices the nodes are spread."""

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"

    def rank(self, name: str) -> Iterable[JsonObject]:
        """Build the environment variables from which a node knows its rank: with a single slice, the rank itself.

        With several, `give_rank` has to follow.
        """
        return PLACE if self.slices > 1 else (env_completion_index(name),)

    def give_rank(self, container: JsonObject, name: str) -> None:
        """Let the command of a container find its rank, across all slices, in the variable `name`.

        If nobody says what the command is, only the image knows, and there is no such variable.
        """
        if self.slices > 1 and container.get("command"):
            container["command"] = ranked(container["command"], name, per_slice=self.nodes // self.slices)

    def megascale(self) -> list[JsonObject]:
        """Build the variables by which the slices of a TPU find each other; none if there is one slice."""
        if self.slices <= 1:
            return []
        return [
            env_value(MEGASCALE_COORDINATOR_ADDRESS, self.host),
            env_value(MEGASCALE_NUM_SLICES, self.slices),
            env_field(MEGASCALE_SLICE_ID, JOB_INDEX_FIELD_PATH),
        ]


def node_count(info: Info, job: TrainJob) -> int:
    """Tell how many nodes train: what the TrainJob asks for, else what the runtime says, else one for each slice."""
    asked = job.spec.trainer.num_nodes if job.spec.trainer else None
    if asked is not None:
        return asked
    if info.trainer is None:
        return 1
    runtimes = info.ml_policy.num_nodes if info.ml_policy else None
    return info.trainer.size if runtimes is None else max(runtimes, 1)


def set_node_count(info: Info, job: TrainJob) -> None:
    """Give the trainer as many nodes as the TrainJob asks for; if it does not say, the runtime's number stays.

    Raises:
        Rejected: They do not come out even among the slices.
    """
    if info.trainer:
        set_pods(info.trainer, node_count(info, job))


def set_pods(pods: PodSet, count: int) -> None:
    """Give a pod set that many pods, all in all.

    Raises:
        Rejected: They do not come out even among the slices.
    """
    try:
        pods.count = hosts_per_slice(count, pods.replicas, name=pods.name)
    except SlicesInvalid as error:
        raise Rejected(str(error)) from error


def rendezvous(info: Info, job: TrainJob) -> Rendezvous | None:
    """Tell where the nodes of the trainer meet; None if the runtime has no trainer."""
    nodes = info.trainer
    if nodes is None:
        return None
    if nodes.size <= 1 and not _has_host_names(info):
        # The only node reaches itself without DNS.
        return Rendezvous(nodes.size, "localhost")
    name = job.metadata.name
    return Rendezvous(nodes.size, f"{name}-{nodes.name}-0-0.{info.subdomain(name)}", slices=nodes.replicas)


def join(info: Info, job: TrainJob, meeting: Rendezvous, environment: Iterable[JsonObject], *, rank: str) -> None:
    """Let the trainer container join: give it the variables of its framework, among them `rank`, and open the port."""
    container = info.trainer_container
    if container is None:
        return
    upsert_env(container, environment)
    upsert_ports(container, [{"containerPort": meeting.port}])
    command = _command(info, job)
    if meeting.slices > 1 and command and not _sets(job, rank):
        container["command"] = command
        meeting.give_rank(container, rank)
        if info.trainer_command or (job.spec.trainer and job.spec.trainer.command):
            # Otherwise building would put the TrainJob's own command in the place of this one.
            info.trainer_command = container["command"]


def has_command(info: Info, job: TrainJob) -> bool:
    """Tell whether the command of the trainer container is known, rather than that of its image."""
    return bool(_command(info, job))


def unranked(info: Info, job: TrainJob, rank: str) -> Iterator[FieldWarning]:
    """Warn about nodes of several slices that will not know their rank."""
    if info.trainer and info.trainer.replicas > 1 and not has_command(info, job) and not _sets(job, rank):
        detail = (
            f"{rank} will not be set: with several slices it is calculated in front of the command, and neither the "
            "TrainJob nor the runtime says which that is; set spec.trainer.command"
        )
        yield FieldWarning("spec.trainer.command", detail)


def unreachable(info: Info, job: TrainJob) -> Iterator[FieldWarning]:
    """Warn about nodes that cannot find each other."""
    nodes = node_count(info, job)
    if nodes > 1 and not _has_host_names(info):
        yield FieldWarning(
            "spec.runtimeRef",
            f"the runtime sets network.enableDNSHostnames to false, so the {nodes} nodes of the trainer cannot find "
            "each other; use one node, or a runtime with host names",
        )


def reserved_env(job: TrainJob, reserved: frozenset[str]) -> Iterator[FieldError]:
    """Give one error for all variables of the trainer that only its framework may set."""
    env = job.spec.trainer.env if job.spec.trainer else []
    taken = sorted({variable["name"] for variable in env} & reserved)
    if taken:
        detail = f"must not have reserved envs, invalid envs configured: [{' '.join(taken)}]"
        yield FieldError("spec.trainer.env", detail, value=env)


def check_process_count(job: TrainJob, runtimes: int | str | None) -> None:
    """Check that each node has a process. Our schema and our webhooks see to that; those of the original do not.

    Args:
        job: The TrainJob.
        runtimes: What its runtime says.

    Raises:
        Rejected: It has none.
    """
    asked = job.spec.trainer.num_proc_per_node if job.spec.trainer else None
    count, where = (runtimes, "the runtime's mlPolicy") if asked is None else (asked, "spec.trainer")
    if isinstance(count, int) and count < 1:
        raise Rejected(f"numProcPerNode of {where} is {count}, but must be greater than or equal to 1")


def ignored_process_count(job: TrainJob, framework: str) -> Iterator[FieldWarning]:
    """Warn about a number of processes that a framework has no use for."""
    count = job.spec.trainer.num_proc_per_node if job.spec.trainer else None
    if count is not None:
        detail = f"numProcPerNode is ignored by {framework}: the command starts once on each node; leave it out"
        yield FieldWarning("spec.trainer.numProcPerNode", detail)


def _command(info: Info, job: TrainJob) -> list[str]:
    """The command of the trainer container: that of its framework, else of the TrainJob, else of the runtime."""
    users = job.spec.trainer.command if job.spec.trainer else None
    return list(info.trainer_command or users or (info.trainer_container or {}).get("command") or [])


def _sets(job: TrainJob, variable: str) -> bool:
    return any(each["name"] == variable for each in (job.spec.trainer.env if job.spec.trainer else []))


def _has_host_names(info: Info) -> bool:
    return (info.template.get("network") or {}).get("enableDNSHostnames") is not False
