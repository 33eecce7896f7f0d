"""Trains with DeepSpeed, by its launcher that needs no hostfile and no SSH.

A runtime asks for it by `mlPolicy.custom: {name: deepspeed}`, and commands are written as everywhere: `deepspeed
train.py`. Each node starts its own processes with `deepspeed.launcher.launch`, which is told everything that the
hostfile would have told: who takes part, with how many processes, and where rank 0 is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, Field

from trainmaster.runtime.sdk import (
    FieldError,
    FieldWarning,
    Info,
    Rejected,
    Rendezvous,
    TrainJob,
    env_value,
    join,
    rendezvous,
    reserved_env,
    set_node_count,
    unreachable,
)

NODE_RANK = "DEEPSPEED_NODE_RANK"
RESERVED = frozenset({NODE_RANK, "MASTER_ADDR", "MASTER_PORT"})

MOST_PROCESSES = 4096
"""The launcher is told of all of them in one argument, and Linux takes none of more than 128 KiB."""


class DeepSpeedPolicy(BaseModel):
    """What a runtime may say, at mlPolicy.custom.config."""

    model_config = ConfigDict(extra="forbid")

    processes_per_node: int | None = Field(
        None, alias="processesPerNode", ge=1, description="Default: one for each GPU, or one."
    )


class DeepSpeed:
    """Serves `mlPolicy.custom` of the name deepspeed."""

    name = "deepspeed"
    api_version = "1.0"
    ml_policy_config = DeepSpeedPolicy

    def enforce_ml_policy(self, info: Info, job: TrainJob, config: DeepSpeedPolicy) -> None:
        """Set the number of nodes, and let each of them start its processes."""
        set_node_count(info, job)
        meeting = rendezvous(info, job)
        if meeting is None:
            return
        if meeting.slices > 1:
            raise Rejected("DeepSpeed's launcher knows one slice; use a runtime whose trainer has `replicas: 1`")
        processes = _processes(info, job, config)
        if meeting.nodes * processes > MOST_PROCESSES:
            raise Rejected(f"{meeting.nodes} nodes of {processes} processes are more than {MOST_PROCESSES} processes")
        environment = [
            env_value("MASTER_ADDR", meeting.host),
            env_value("MASTER_PORT", meeting.port),
            *meeting.rank(NODE_RANK),
        ]
        join(info, job, meeting, environment, rank=NODE_RANK)
        command = _command(info, job)
        if command[:1] == ["deepspeed"]:
            info.trainer_command = [*_launcher(meeting, processes), *command[1:]]

    def validate(self, info: Info, job: TrainJob) -> Iterator[FieldError | FieldWarning]:
        """Check what the launcher cannot do, and the variables that are its own."""
        yield from reserved_env(job, RESERVED)
        yield from unreachable(info, job)
        command = _command(info, job)
        if command[:1] != ["deepspeed"]:
            detail = "does not begin with `deepspeed`, so it runs once on each node as it is"
            yield FieldWarning("spec.trainer.command", detail)
        elif len(command) > 1 and command[1].startswith("--") and command[1] not in ("--module", "--no_python"):
            detail = "is an option of the runner that reads hostfiles; use numNodes and numProcPerNode of the trainer"
            yield FieldError("spec.trainer.command[1]", detail, value=command[1])


def _processes(info: Info, job: TrainJob, config: DeepSpeedPolicy) -> int:
    asked = job.spec.trainer.num_proc_per_node if job.spec.trainer else None
    return asked or config.processes_per_node or info.trainer_gpus or 1


def _command(info: Info, job: TrainJob) -> list[str]:
    users = job.spec.trainer.command if job.spec.trainer else None
    return list(users or (info.trainer_container or {}).get("command") or [])


def _launcher(meeting: Rendezvous, processes: int) -> list[str]:
    world = {f"{rank}": list(range(processes)) for rank in range(meeting.nodes)}
    encoded = base64.urlsafe_b64encode(json.dumps(world).encode()).decode()
    return [
        *("python3", "-u", "-m", "deepspeed.launcher.launch"),
        f"--world_info={encoded}",
        f"--node_rank=$({NODE_RANK})",  # the kubelet fills in the variable
        f"--master_addr={meeting.host}",
        f"--master_port={meeting.port}",
    ]
