"""Preemption: pods of a lower priority make room for one that fits on no node; those that stay can stay.

As in kube-scheduler: of the pods of lower priority on a node as few as possible go, the least important of them, and
the node on which they matter least is taken. The pod that waits gets `status.nominatedNodeName`, and is scheduled when
they are gone. Disruption budgets are not looked at.

A group of pods that Kubernetes schedules looks at all nodes at once. Its own priority counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.registry.generic.disruption import Disruption, disrupt
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.controllers.objects import is_terminal, is_terminating
from trainmaster.devcluster.events import EventRecorder, Note
from trainmaster.devcluster.scheduler.filters import HostPort, filter_node
from trainmaster.devcluster.scheduler.node_info import NodeInfo
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resource_requirements import pod_requests

_OPTIONS: Final = WriteOptions(field_manager="kube-scheduler")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node, and who has to leave it."""

    node: str
    victims: Sequence[JsonObject]

    @property
    def cost(self) -> tuple[int, int, str]:
        """Sorts candidates: by the most important victim, then by their number."""
        return (max(map(priority_of, self.victims)), len(self.victims), self.node)


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that only go together."""

    priority: int
    pods: list[JsonObject] = field(default_factory=list)

    @property
    def importance(self) -> tuple[int, str]:
        """Sorts units: the most important first, of these the oldest."""
        return (-self.priority, min(each["metadata"]["creationTimestamp"] for each in self.pods))


def priority_of(obj: JsonObject) -> int:
    """Return the priority of a pod or a group."""
    return int(obj["spec"].get("priority") or 0)


def select_victims(pod: JsonObject, node: JsonObject, running: Sequence[JsonObject]) -> list[JsonObject]:
    """Return which of the pods of a node have to go for another to fit; none if that would not help, or is not needed.

    Args:
        pod: The pod that waits.
        node: The node.
        running: All pods that have the node and have not ended.
    """
    wanted = pod_requests(pod["spec"])

    def fits(kept: Sequence[JsonObject]) -> bool:
        info = NodeInfo()
        for each in kept:
            info.add(each)
        ports = set[HostPort]().union(*info.ports.values())
        return not filter_node(pod, wanted, node, info.requested, len(kept), ports=ports)

    return _least_victims(priority_of(pod), [Unit(priority_of(each), [each]) for each in running], fits)


def _least_victims(
    priority: int, units: Iterable[Unit], fits: Callable[[Sequence[JsonObject]], bool]
) -> list[JsonObject]:
    """Return the pods that have to go; `fits` tells whether what waits has room beside those that stay."""
    kept = [pod for unit in units if unit.priority >= priority for pod in unit.pods]
    if not fits(kept):
        return []
    victims = []
    for unit in sorted((each for each in units if each.priority < priority), key=lambda each: each.importance):
        if fits([*kept, *unit.pods]):
            kept += unit.pods
        else:
            victims += unit.pods
    return victims


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
        await self._evict(chosen.victims, pod, "pod", chosen.node)

    async def preempt_for_group(
        self,
        group: JsonObject,
        waiting: Sequence[JsonObject],
        units: Sequence[Unit],
        fits: Callable[[Sequence[JsonObject]], bool],
    ) -> bool:
        """Take away pods of lower priority that keep a group from starting; tells whether that helps.

        `units` are the pods that stay on their nodes; `fits` tells whether the group can start beside some of them.
        """
        if any(each["spec"].get("preemptionPolicy") == "Never" for each in waiting):
            return False
        if fits([pod for unit in units for pod in unit.pods]):
            return True  # others are on their way out
        victims = _least_victims(priority_of(group), units, fits)
        await self._evict(victims, group, "podgroup", "cluster")
        return bool(victims)

    async def _evict(self, victims: Sequence[JsonObject], preemptor: JsonObject, kind: str, node: str) -> None:
        scheduler = preemptor["spec"].get("schedulerName") or "default-scheduler"
        text = f"{scheduler}: preempting to accommodate a higher priority {kind}"
        for victim in victims:
            note = Note("Normal", "Preempted", f"Preempted by {kind} {preemptor['metadata']['uid']} on node {node}")
            await self._events.record(victim, note, action="Preempting")
            try:
                await disrupt(self._api, victim, Disruption("PreemptionByScheduler", text), write=_OPTIONS)
            except StatusError as error:
                if error.code != 404:
                    raise
