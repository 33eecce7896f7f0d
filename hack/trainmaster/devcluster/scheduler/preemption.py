"""Preemption: pods of a lower priority make room for one that fits on no node; those that stay can stay.

As in kube-scheduler: of the pods of lower priority on a node as few as possible go, the least important of them, and
the node on which they matter least is taken. The pod that waits gets `status.nominatedNodeName`, and is scheduled when
they are gone. Disruption budgets are not looked at, and groups of pods preempt nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.generic.disruption import Disruption, disrupt
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.controllers.objects import is_terminal, is_terminating
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.devcluster.scheduler.filters import filter_node, host_ports
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests

_OPTIONS: Final = WriteOptions(field_manager="kube-scheduler")
_ZERO: Final = Quantity.parse("0")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, and who has to leave it."""

    node: str
    victims: Sequence[JsonObject]

    @property
    def cost(self) -> tuple[int, int, str]:
        """Sorts candidates: by the most important victim, then by their number."""
        return (max(map(priority_of, self.victims)), len(self.victims), self.node)


def priority_of(pod: JsonObject) -> int:
    """Return the priority of a pod."""
    return int(pod["spec"].get("priority") or 0)


def select_victims(pod: JsonObject, node: JsonObject, running: Sequence[JsonObject]) -> list[JsonObject]:
    """Return which of the pods of a node have to go for another to fit; none if that would not help, or is not needed.

    Args:
        pod: The pod that waits.
        node: The node.
        running: All pods that have the node and have not ended.
    """
    wanted, own = pod_requests(pod["spec"]), priority_of(pod)
    kept = [each for each in running if priority_of(each) >= own]

    def fits() -> bool:
        ports = {port for each in kept for port in host_ports(each)}
        return not filter_node(pod, wanted, node, _sum(kept), len(kept), ports=ports)

    if not fits():
        return []
    victims = []
    for candidate in sorted((each for each in running if priority_of(each) < own), key=_importance):
        kept.append(candidate)
        if not fits():
            kept.pop()
            victims.append(candidate)
    return victims


def _importance(pod: JsonObject) -> tuple[int, str]:
    """Sort pods: the most important first, of these the oldest."""
    return (-priority_of(pod), pod["metadata"]["creationTimestamp"])


def _sum(pods: Sequence[JsonObject]) -> Resources:
    total: Resources = {}
    for pod in pods:
        for name, amount in pod_requests(pod["spec"]).items():
            total[name] = total.get(name, _ZERO) + amount
    return total


class Preemption:
    """Makes room for pods."""

    def __init__(self, api: Api, events: EventRecorder) -> None:
        self._api = api
        self._events = events

    async def preempt(self, pod: JsonObject, nodes: Sequence[JsonObject]) -> None:
        """Take away the pods of lower priority that keep a pod from a node, if that helps."""
        if pod["spec"].get("preemptionPolicy") == "Never":
            return
        running = [
            record.object
            for record in self._api.store.list(PODS)
            if record.object["spec"].get("nodeName") and not is_terminal(record.object)
        ]
        if all(priority_of(each) >= priority_of(pod) for each in running):
            return
        nominated = (pod.get("status") or {}).get("nominatedNodeName")
        if any(each["spec"]["nodeName"] == nominated and is_terminating(each) for each in running):
            return  # its victims are on their way out
        candidates = []
        for node in nodes:
            name = node["metadata"]["name"]
            there = [each for each in running if each["spec"]["nodeName"] == name]
            if victims := select_victims(pod, node, there):
                candidates.append(Candidate(name, victims))
        if candidates:
            await self._make_room(pod, min(candidates, key=lambda each: each.cost))

    async def _make_room(self, pod: JsonObject, chosen: Candidate) -> None:
        metadata = pod["metadata"]
        live = self._api.get(PODS, metadata["namespace"], metadata["name"])
        status = {**(live.get("status") or {}), "nominatedNodeName": chosen.node}
        await self._api.update(PODS, {**live, "status": status}, subresource="status", options=_OPTIONS)
        scheduler = pod["spec"].get("schedulerName") or "default-scheduler"
        text = f"{scheduler}: preempting to accommodate a higher priority pod"
        for victim in chosen.victims:
            note = Note("Normal", "Preempted", f"Preempted by pod {metadata['uid']} on node {chosen.node}")
            await self._events.record(victim, note, action="Preempting")
            try:
                await disrupt(self._api, victim, Disruption("PreemptionByScheduler", text), write=_OPTIONS)
            except StatusError as error:
                if error.code != 404:
                    raise
