"""Slices: a trainer whose ReplicatedJob has several replicas, for instance one for each slice of a multi-slice TPU.

- `numNodes` is the total number of hosts. Each replica is a Job of as many pods as the slice has hosts, so the number
  of hosts has to be a multiple of the number of slices.
- Rank runs through the slices in order: all hosts of slice 0, then all of slice 1. A pod knows the index of its Job
  and its own index within that, and Kubernetes cannot calculate with variables. So a line of shell in front of the
  command does it, and then becomes the command.
- Only the trainer may be sliced: initializers and the launcher do their work once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trainmaster.runtime.api.constants import (
    ANCESTORS,
    COMPLETION_INDEX_FIELD_PATH,
    HOST_ID,
    JOB_INDEX_FIELD_PATH,
    LAUNCHER,
    SLICE_ID,
    TRAINER_ANCESTOR,
)
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.podspec import env_field

PLACE: Final[tuple[JsonObject, ...]] = (
    env_field(SLICE_ID, JOB_INDEX_FIELD_PATH),
    env_field(HOST_ID, COMPLETION_INDEX_FIELD_PATH),
)
"""The variables that tell a pod which slice it belongs to, and which host of the slice it is."""


class SlicesInvalid(ValueError):
    """The hosts cannot be dealt out to the slices; the message has the numbers."""


def effective_replicas(name: str, ancestor: str | None, replicas: int, *, mpi: bool) -> int:
    """Give the replicas of a ReplicatedJob that are built: of what is done once, one, whatever its runtime says."""
    return 1 if _is_done_once(name, ancestor, mpi=mpi) else replicas


def check_replicas(name: str, ancestor: str | None, replicas: int, *, mpi: bool) -> str | None:
    """Say what is wrong with the number of replicas of a ReplicatedJob in a runtime; None if nothing is.

    This is what the admission of runtimes says: trainers have at least one slice, other steps exactly one replica.
    """
    if _is_done_once(name, ancestor, mpi=mpi):
        return "always must be 1" if replicas != 1 else None
    return "must be greater than or equal to 1" if ancestor == TRAINER_ANCESTOR and replicas < 1 else None


def _is_done_once(name: str, ancestor: str | None, *, mpi: bool) -> bool:
    if name == LAUNCHER and (mpi or ancestor == TRAINER_ANCESTOR):
        return True
    return ancestor in ANCESTORS and ancestor != TRAINER_ANCESTOR


def hosts_per_slice(hosts: int, slices: int, *, name: str) -> int:
    """Deal hosts out to the slices of a ReplicatedJob.

    Raises:
        SlicesInvalid: There is no slice, or the hosts do not come out even.
    """
    if slices < 1:
        raise SlicesInvalid(
            f"the ReplicatedJob {name!r} of the runtime has replicas: {slices}, and training needs at least 1 slice"
        )
    if hosts % slices:
        below = hosts - hosts % slices
        nearest = f"{below} or {below + slices}" if below else f"{slices}"
        raise SlicesInvalid(
            f"{hosts} nodes cannot be divided evenly among the {slices} slices (replicas) of the ReplicatedJob "
            f"{name!r}: numNodes must be a multiple of {slices}, for instance {nearest}"
        )
    return hosts // slices


def ranked(command: Sequence[str], variable: str, *, per_slice: int) -> list[str]:
    """Put the calculation of the rank in front of a command, which then finds it in its environment."""
    script = f'export {variable}=$(({SLICE_ID} * {per_slice} + {HOST_ID})) && exec "$@"'
    return ["/bin/sh", "-c", script, "sh", *command]
