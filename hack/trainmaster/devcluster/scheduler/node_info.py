"""What of each node is in use, and snapshots in which pods are scheduled without being bound.

The node infos are fed by the store, so they hold what the stored pods say and nothing else. A snapshot is a private
copy; each pod that is scheduled in it takes its share, so it tells whether several pods fit together before any of them
is bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.scheduler.filters import (
    HostPort,
    claims_problem,
    explain_insufficiency,
    filter_node,
    fit_error,
    host_ports,
    pre_filter_error,
)
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests

_ZERO = Quantity.parse(0)


@dataclass(slots=True)
class NodeInfo:
    """What the pods of one node have requested."""

    requested: Resources = field(default_factory=dict)
    pods: dict[str, Resources] = field(default_factory=dict)
    """Requests by pod uid."""

    ports: dict[str, set[HostPort]] = field(default_factory=dict)
    """Ports of the host by pod uid."""

    def add(self, pod: JsonObject) -> None:
        """Count a pod; one that is counted already stays as it is."""
        uid = pod["metadata"]["uid"]
        if uid not in self.pods:
            requests = self.pods[uid] = pod_requests(pod["spec"])
            self.ports[uid] = host_ports(pod)
            for name, quantity in requests.items():
                self.requested[name] = self.requested.get(name, _ZERO) + quantity

    def remove(self, uid: str) -> bool:
        """Forget a pod; tells whether it was counted."""
        self.ports.pop(uid, None)
        requests = self.pods.pop(uid, None)
        for name, quantity in (requests or {}).items():
            self.requested[name] = self.requested[name] - quantity
        return requests is not None


class NodeInfos:
    """The node infos of all nodes, by name."""

    def __init__(self) -> None:
        self._infos: dict[str, NodeInfo] = {}

    def get(self, node: str) -> NodeInfo:
        """Return the node info of a node, which is kept current."""
        return self._infos.setdefault(node, NodeInfo())


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """Where a pod would go; without a node: why not."""

    pod: JsonObject
    node: str | None
    message: str = ""


def _over_quota(resources: Sequence[str]) -> str:
    return f"queue resource quota insufficient: insufficient {', '.join(resources)}"


class Snapshot:
    """Schedules pods without binding them; each one takes its share from those that follow.

    `limit` is what all of them together may take, whatever the nodes have.
    """

    def __init__(
        self,
        api: Api,
        nodes: Sequence[JsonObject],
        node_infos: NodeInfos,
        *,
        limit: Resources | None = None,
    ) -> None:
        self.nodes = nodes
        self._limit = dict(limit or {})
        self._api = api
        infos = {node["metadata"]["name"]: node_infos.get(node["metadata"]["name"]) for node in nodes}
        self._requested = {name: dict(info.requested) for name, info in infos.items()}
        self._pods = {name: len(info.pods) for name, info in infos.items()}
        self._ports = {name: set[HostPort]().union(*info.ports.values()) for name, info in infos.items()}

    def schedule(self, pod: JsonObject) -> ScheduleResult:
        """Find the node with the most left of those that the pod fits on."""
        requests = pod_requests(pod["spec"])
        if problem := claims_problem(self._api, pod):
            return ScheduleResult(pod, None, message=pre_filter_error(problem, len(self.nodes)))
        exceeded = [name for name, left in sorted(self._limit.items()) if requests.get(name, _ZERO) > left]
        if exceeded:
            return ScheduleResult(pod, None, message=pre_filter_error(_over_quota(exceeded), len(self.nodes)))
        reasons, feasible = [], []
        for node in self.nodes:
            name = node["metadata"]["name"]
            found = filter_node(pod, requests, node, self._requested[name], self._pods[name], ports=self._ports[name])
            reasons.append(found)
            if not found:
                feasible.append(node)
        if feasible:
            name = max(feasible, key=lambda node: self._score(node, requests))["metadata"]["name"]
            self._pods[name] += 1
            self._ports[name] |= host_ports(pod)
            for resource in self._limit.keys() & requests.keys():
                self._limit[resource] = self._limit[resource] - requests[resource]
            for resource, quantity in requests.items():
                self._requested[name][resource] = self._requested[name].get(resource, _ZERO) + quantity
            return ScheduleResult(pod, name)
        message = fit_error(reasons, len(self.nodes)) + explain_insufficiency(requests, reasons, self.nodes)
        return ScheduleResult(pod, None, message=message)

    def _score(self, node: JsonObject, requests: Resources) -> tuple[int, int]:
        """Rate a node as LeastAllocated does, by what would be free of CPU and memory; then by the number of pods."""
        name, allocatable = node["metadata"]["name"], node.get("status", {}).get("allocatable") or {}
        free = 0
        for resource in ("cpu", "memory"):
            if total := Quantity.parse(allocatable.get(resource, "0")).nano:
                used = self._requested[name].get(resource, _ZERO) + requests.get(resource, _ZERO)
                free += 100 * (total - used.nano) // total
        return free, -self._pods[name]

    def insufficient(self, wanted: Resources) -> list[str]:
        """Return the resources of which all nodes together have too little left."""
        return [name for name, quantity in sorted(wanted.items()) if quantity and quantity > self._free(name)]

    def _free(self, resource: str) -> Quantity:
        free = _ZERO
        for node in self.nodes:
            allocatable = node.get("status", {}).get("allocatable") or {}
            used = self._requested[node["metadata"]["name"]].get(resource, _ZERO)
            free = free + (Quantity.parse(allocatable.get(resource, "0")) - used)
        return free
