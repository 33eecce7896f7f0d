"""What of each node is in use, and trials of what else would fit.

The ledger is fed by the store, so it holds what the stored pods say and nothing else. A trial is a private copy that
pods are placed on one after the other; it tells whether several pods fit together before any of them is bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.devcluster.scheduler.devices import Allocation, DeviceTrial, Unallocatable
from trainmaster.devcluster.scheduler.fit import explain, misfits
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests

_ZERO = Quantity.parse(0)


@dataclass(slots=True)
class Usage:
    """What the pods of one node have reserved."""

    reserved: Resources = field(default_factory=dict)
    pods: dict[str, Resources] = field(default_factory=dict)
    """Reservations by pod uid."""

    def add(self, uid: str, requests: Resources) -> None:
        """Count a pod; one that is counted already stays as it is."""
        if uid not in self.pods:
            self.pods[uid] = requests
            for name, quantity in requests.items():
                self.reserved[name] = self.reserved.get(name, _ZERO) + quantity

    def remove(self, uid: str) -> bool:
        """Forget a pod; tells whether it was counted."""
        requests = self.pods.pop(uid, None)
        for name, quantity in (requests or {}).items():
            self.reserved[name] = self.reserved[name] - quantity
        return requests is not None


class Ledger:
    """The usage of all nodes, by name."""

    def __init__(self) -> None:
        self._usage: dict[str, Usage] = {}

    def of(self, node: str) -> Usage:
        """Return the usage of a node, which is kept current."""
        return self._usage.setdefault(node, Usage())


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod would go, and what has to be allocated for it; without a node: why not."""

    pod: JsonObject
    node: str | None
    allocations: Sequence[Allocation] = ()
    message: str = ""


def unavailable(problem: str, nodes: int) -> str:
    """Word the message of a pod that has to wait for a reason that has nothing to do with any single node."""
    return f"0/{nodes} nodes are available: {problem}."


class Trial:
    """Places pods without binding them; each one takes its share from those that follow."""

    def __init__(self, nodes: Sequence[JsonObject], ledger: Ledger, devices: DeviceTrial) -> None:
        self._nodes = nodes
        self._devices = devices
        usages = {node["metadata"]["name"]: ledger.of(node["metadata"]["name"]) for node in nodes}
        self._reserved = {name: dict(usage.reserved) for name, usage in usages.items()}
        self._pods = {name: len(usage.pods) for name, usage in usages.items()}

    def place(self, pod: JsonObject) -> Placement:
        """Find the first node that the pod fits on."""
        requests = pod_requests(pod["spec"])
        try:
            claims = self._devices.claims_of(pod)
        except Unallocatable as error:
            return Placement(pod, None, message=unavailable(str(error), len(self._nodes)))
        reasons = []
        for node in self._nodes:
            name = node["metadata"]["name"]
            found = misfits(pod, requests, node, self._reserved[name], self._pods[name])
            allocations = self._devices.allocate(pod, claims, node) if claims and not found else []
            if allocations is None:
                found = ["cannot allocate all claims"]
            if not found:
                self._pods[name] += 1
                for resource, quantity in requests.items():
                    self._reserved[name][resource] = self._reserved[name].get(resource, _ZERO) + quantity
                self._devices.take(allocations or [])
                return Placement(pod, name, allocations or [])
            reasons.append(found)
        return Placement(pod, None, message=explain(reasons, len(self._nodes)))

    def lacks(self, wanted: Resources) -> list[str]:
        """Return the resources of which all nodes together have too little left."""
        return [name for name, quantity in sorted(wanted.items()) if quantity and quantity > self._free(name)]

    def _free(self, resource: str) -> Quantity:
        free = _ZERO
        for node in self._nodes:
            allocatable = node.get("status", {}).get("allocatable") or {}
            used = self._reserved[node["metadata"]["name"]].get(resource, _ZERO)
            free = free + (Quantity.parse(allocatable.get(resource, "0")) - used)
        return free
