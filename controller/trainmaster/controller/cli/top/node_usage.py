"""What nodes have, and what the pods on them have asked for; pure.

Usage is by requests, as schedulers count it: what a pod really uses the API does not tell. Devices of ResourceClaims
are not counted, which no pod asks for by a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity, QuantityError
from trainmaster.runtime.resource_requirements import Resources, pod_requests, sum_resources

CPU: Final = "cpu"
MEMORY: Final = "memory"

_NO_ACCELERATORS: Final = frozenset({CPU, MEMORY, "pods", "ephemeral-storage", "storage"})
_NO_ACCELERATOR_PREFIXES: Final = ("hugepages-", "attachable-volumes-")
_ZERO: Final = Quantity.parse(0)


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """A node, or several together."""

    name: str
    status: str
    """`Ready`, or what is wrong with it, as `kubectl get nodes` writes it."""

    allocatable: Mapping[str, Quantity]
    requested: Mapping[str, Quantity]
    """By the pods that are bound to it and have not ended."""

    @property
    def is_ready(self) -> bool:
        """Whether pods may be put on it."""
        return self.status == "Ready"

    @property
    def accelerators(self) -> Sequence[str]:
        """The names of the accelerators, and of other devices, that it has."""
        return sorted(name for name, amount in self.allocatable.items() if amount and is_accelerator(name))

    def share(self, resource: str) -> float:
        """Return how much of a resource is asked for, from 0; also above 1."""
        has = self.allocatable.get(resource, _ZERO)
        return self.requested.get(resource, _ZERO).nano / has.nano if has else 0.0

    @property
    def fullness(self) -> float:
        """Return the share of the resource that is the scarcest."""
        return max((self.share(name) for name in (CPU, MEMORY, *self.accelerators)), default=0.0)


def node_usages(nodes: Iterable[JsonObject], pods: Iterable[JsonObject]) -> list[NodeUsage]:
    """Return the usage of nodes by the pods that are bound to them."""
    requests: dict[str, list[Resources]] = {}
    for pod in pods:
        with suppress(QuantityError):
            requests.setdefault(pod["spec"]["nodeName"], []).append(pod_requests(pod["spec"]))
    return [
        NodeUsage(
            name=name,
            status=_status(node),
            allocatable=_amounts((node.get("status") or {}).get("allocatable")),
            requested=sum_resources(requests.get(name, ())),
        )
        for node in nodes
        for name in [node["metadata"]["name"]]
    ]


def total(nodes: Iterable[NodeUsage]) -> NodeUsage:
    """Return all nodes together; what those have that take no pods is not to be had, and does not count."""
    listed = list(nodes)
    ready = [node for node in listed if node.is_ready]
    return NodeUsage(
        name="",
        status=f"{len(ready)}/{len(listed)}",
        allocatable=sum_resources(dict(node.allocatable) for node in ready),
        requested=sum_resources(dict(node.requested) for node in ready),
    )


def is_accelerator(resource: str) -> bool:
    """Tell whether a resource is a device, such as `nvidia.com/gpu`."""
    return resource not in _NO_ACCELERATORS and not resource.startswith(_NO_ACCELERATOR_PREFIXES)


def _status(node: JsonObject) -> str:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    words = []
    if (ready := conditions.get("Ready", {}).get("status")) != "True":
        words.append("NotReady" if ready == "False" else "Unknown")
    words += [kind for kind in ("DiskPressure", "MemoryPressure", "PIDPressure") if _holds(conditions.get(kind))]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words) or "Ready"


def _holds(condition: JsonObject | None) -> bool:
    return (condition or {}).get("status") == "True"


def _amounts(listed: Mapping[str, str] | None) -> Resources:
    found: Resources = {}
    for name, amount in (listed or {}).items():
        try:
            found[name] = Quantity.parse(amount)
        except QuantityError:
            continue  # of a node that writes odd things the rest is told
    return found
