"""The world: how many processes were asked for, and how many train, as frameworks write to their logs. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from trainmaster.runtime.api.constants import PET_NNODES, PET_NPROC_PER_NODE
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import QuantityError
from trainmaster.runtime.resource_requirements import accelerator_count, gpu_count

_LINES: Final = (
    ("global_world_sizes=[", "", "torchrun"),  # at the log level INFO
    ("MEMBER: ", "/", "Lightning"),
)
"""What stands before the size of the world in lines of frameworks, what else between the two, and who writes that.

Open MPI writes no such line.
"""


class World(NamedTuple):
    """What was asked for."""

    nodes: int
    per_node: int | None = None
    """Processes on each node; None if that is decided on the node."""

    def lacks(self, told: int) -> bool:
        """Return whether so many processes are fewer than were asked for."""
        return told < self.nodes * (self.per_node or 1)

    def __str__(self) -> str:
        each = "" if self.per_node is None else f" with {_count(self.per_node, 'process')} each"
        return f"{_count(self.nodes, 'node')}{each}"


def mismatch(world: World, told: int, who: str) -> str:
    """Say what is wrong with a world that is too small."""
    return f"{_count(told, 'process')} of {world} train, as {who} says"


def asked_for(container: JsonObject, nodes: int) -> World:
    """Return the world that a container of so many nodes is told; elastic training may have the fewest nodes."""
    variables = {each["name"]: str(each.get("value")) for each in container.get("env") or ()}
    least = variables.get(PET_NNODES, "").partition(":")[0]
    processes = variables.get(PET_NPROC_PER_NODE, "")
    return World(_number(least) or nodes, _per_node(processes, container))


def _per_node(processes: str, container: JsonObject) -> int | None:
    if (number := _number(processes)) is not None:
        return number
    resources = container.get("resources") or {}
    try:
        devices = gpu_count(resources) or accelerator_count(resources)
    except QuantityError:
        return None
    return (devices or None) if processes in {"auto", "gpu"} else None


def told_by(line: str) -> tuple[int, str] | None:
    """Return the size of the world that a line tells, and who writes such lines; None if it tells none."""
    for mark, between, who in _LINES:
        _, found, rest = line.partition(mark)
        digits = rest.partition(between)[2] if between else rest
        size = _number(digits[: len(digits) - len(digits.lstrip("0123456789"))])
        if found and size is not None:
            return size, who
    return None


def _number(digits: str) -> int | None:
    """Read a number that is not too long to be one of processes."""
    return int(digits) if digits.isdecimal() and len(digits) < 10 else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"
