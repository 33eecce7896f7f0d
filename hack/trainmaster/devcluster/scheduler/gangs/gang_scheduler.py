"""The gang scheduler: carries out what `plan` decides for a PodGroup, and writes the status of the group.

- A group is looked at when one of its pods or the group itself changes, and when room becomes free.
- Everything is read from the stored pods and groups, so a restart between two bindings loses nothing: a group that was
  caught half bound comes before all others.
- A pod of a group that does not exist (yet) waits.
- Groups that Kubernetes schedules preempt what is less important, and the room that is left for them counts as taken.
  The other groups preempt nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import (
    NODES,
    POD_GROUPS,
    PODS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    WORKLOAD_POD_GROUPS,
)
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.control_loop import key_of
from trainmaster.devcluster.controllers.indexer import Indexer, find
from trainmaster.devcluster.controllers.objects import is_terminal, is_terminating
from trainmaster.devcluster.controllers.volcanoqueue import DEFAULT_QUEUE
from trainmaster.devcluster.events import EventRecorder
from trainmaster.devcluster.scheduler.binding import Binder
from trainmaster.devcluster.scheduler.filters import pre_filter_error, queue_sort_key
from trainmaster.devcluster.scheduler.gangs import coscheduling, kubernetes, volcano
from trainmaster.devcluster.scheduler.gangs.pod_group import (
    GangPlan,
    PodGroupMembers,
    plan_gang,
    pod_group_of,
    requirement_of,
    sort_members,
)
from trainmaster.devcluster.scheduler.gangs.volcano import (
    Neighbour,
    enqueue_problem,
    is_enqueued,
    left_of,
    queue_of,
)
from trainmaster.devcluster.scheduler.node_info import NodeInfos, ScheduleResult, Snapshot
from trainmaster.devcluster.scheduler.preemption import Preemption, Unit, priority_of
from trainmaster.runtime.jsontree import JsonObject

GROUP_RESOURCES = (POD_GROUPS, VOLCANO_POD_GROUPS, WORKLOAD_POD_GROUPS)
_WRITERS = {
    POD_GROUPS: ("scheduler-plugins-controller", WriteOptions(field_manager="scheduler-plugins-controller")),
    VOLCANO_POD_GROUPS: ("vc-scheduler", WriteOptions(field_manager="vc-scheduler")),
    WORKLOAD_POD_GROUPS: ("default-scheduler", WriteOptions(field_manager="kube-scheduler")),
}


class GangScheduler:
    """Binds the pods of groups; its caller says which group to reconcile, and when."""

    def __init__(
        self,
        api: Api,
        *,
        members: Indexer[ObjectKey],
        node_infos: NodeInfos,
        binder: Binder,
        preemption: Preemption,
        is_responsible_for: Callable[[JsonObject], bool],
    ) -> None:
        self._api = api
        self._members = members
        self._node_infos = node_infos
        self._binder = binder
        self._preemption = preemption
        self._kept: dict[ObjectKey, list[ScheduleResult]] = {}
        """Room that pods are leaving for a group; after a restart it is found again."""
        self._is_responsible_for = is_responsible_for
        self._events = {resource: EventRecorder(api, name) for resource, (name, _) in _WRITERS.items()}

    def members(self, key: ObjectKey) -> PodGroupMembers:
        """Return the pods of a group that are this scheduler's business."""
        return sort_members([pod for pod in self._members.by_index(key) if self._is_responsible_for(pod)])

    async def reconcile(self, key: ObjectKey) -> tuple[bool, float | None]:
        """Bring one group forward; tells whether pods are left waiting, and when to look again."""
        group, members = find(self._api, key), self.members(key)
        for result in self._kept.pop(key, ()):
            self._node_infos.get(result.node or "").remove(result.pod["metadata"]["uid"])
        for pod in members.bound:
            await self._binder.mark_scheduled(pod)
        nodes = [record.object for record in self._api.store.list(NODES)]
        if group is None:
            text = pre_filter_error(f"PodGroup {key.namespace}/{key.name} not found", len(nodes))
            for pod in members.waiting if key.resource != WORKLOAD_POD_GROUPS else ():  # Kubernetes says nothing
                await self._binder.mark_unschedulable(pod, text)
            return False, None  # its creation is an event
        if key.resource == WORKLOAD_POD_GROUPS:
            plan = self._place(group, members, nodes, self._node_infos)
            await self._preempt(plan, key, group, members, nodes)
        else:
            plan = self._plan(key, group, members, nodes)
        for result in plan.bind:
            await self._binder.bind(result)
        for pod, message in plan.unschedulable:
            await self._binder.mark_unschedulable(pod, message, stable=plan.stable)
        again = None
        if not plan.bind:  # else the bound pods cause another look, with their new state
            again = await self._write_status(key, group, members, plan)
        return bool(plan.unschedulable or plan.enqueue_problem), again

    def _plan(self, key: ObjectKey, group: JsonObject, members: PodGroupMembers, nodes: list[JsonObject]) -> GangPlan:
        requirement, waiting = requirement_of(group), sorted(members.waiting, key=queue_sort_key)
        limit = None
        if key.resource == VOLCANO_POD_GROUPS:
            name = queue_of(group)
            queue = find(self._api, ObjectKey(VOLCANO_QUEUES, "", name))
            problem = _queue_problem(name, queue)
            if not problem and not is_enqueued(group, members):
                snapshot = Snapshot(self._api, nodes, self._node_infos)
                problem = enqueue_problem(group, queue, self._others(key), snapshot)
                if not problem:
                    return GangPlan("Complete")  # it leaves the queue first; its pods come with the next look
            if problem:
                text = pre_filter_error(problem, len(nodes))
                postponed = [(pod, text) for pod in waiting]
                return GangPlan("TooFewResources", problem, unschedulable=postponed, enqueue_problem=problem)
            if (queue or {}).get("spec", {}).get("capability"):
                limit = left_of(queue, [members, *(each.members for each in self._others(key, queue=name))])
        snapshot = Snapshot(self._api, nodes, self._node_infos, limit=limit)
        return plan_gang(requirement, members, snapshot, waiting=waiting)

    def _place(
        self, group: JsonObject, members: PodGroupMembers, nodes: list[JsonObject], node_infos: NodeInfos
    ) -> GangPlan:
        """Decide about a group of Kubernetes by trying its placements."""
        requirement, waiting = requirement_of(group), sorted(members.waiting, key=queue_sort_key)
        found = kubernetes.placements(group, members, nodes)
        plans = [
            plan_gang(requirement, members, Snapshot(self._api, each, node_infos), waiting=waiting, of_kubernetes=True)
            for each in found or [[]]
        ]
        return kubernetes.choose(group, plans, placements=len(found))

    async def _preempt(
        self, plan: GangPlan, key: ObjectKey, group: JsonObject, members: PodGroupMembers, nodes: list[JsonObject]
    ) -> None:
        """Make room for a group of Kubernetes that has too little, or say that nobody can."""
        if plan.state != "TooFewResources" or kubernetes.topology_key(group) is not None:
            return

        def fits(others: Sequence[JsonObject]) -> bool:
            node_infos = NodeInfos()
            for pod in others:
                node_infos.get(pod["spec"]["nodeName"]).add(pod)
            placed = self._place(group, members, nodes, node_infos)
            if placed.state == "Complete":
                self._kept[key] = placed.bind  # of the last such plan, which is the one that is carried out
            return placed.state == "Complete"

        if not await self._preemption.preempt_for_group(group, members.waiting, self._units(), fits):
            plan.message = f"{plan.message}, {kubernetes.NO_VICTIMS}"
        for result in self._kept.get(key, ()):
            self._node_infos.get(result.node or "").add(result.pod)

    def _units(self) -> list[Unit]:
        """Return the pods that stay on their nodes, by what preempts them: alone, or with their whole group."""
        units: dict[ObjectKey, Unit] = {}
        for record in self._api.store.list(PODS):
            pod = record.object
            if pod["spec"].get("nodeName") and not is_terminal(pod) and not is_terminating(pod):
                group_key = pod_group_of(pod)
                group = find(self._api, group_key) if group_key and group_key.resource == WORKLOAD_POD_GROUPS else None
                whole = group is not None and group["spec"].get("disruptionMode") == "PodGroup"
                key = group_key if group_key and whole else key_of(PODS, pod)
                units.setdefault(key, Unit(priority_of(group or pod))).pods.append(pod)
        return list(units.values())

    def _others(self, key: ObjectKey, *, queue: str | None = None) -> Iterator[Neighbour]:
        """Return all other groups of Volcano, or those of one queue."""
        for record in self._api.store.list(VOLCANO_POD_GROUPS):
            other = key_of(VOLCANO_POD_GROUPS, record.object)
            if other != key and (queue is None or queue_of(record.object) == queue):
                yield Neighbour(record.object, self.members(other))

    async def _write_status(
        self, key: ObjectKey, group: JsonObject, members: PodGroupMembers, plan: GangPlan
    ) -> float | None:
        requirement, now = requirement_of(group), self._api.clock()
        if key.resource == VOLCANO_POD_GROUPS:
            update = volcano.next_status(group, members, requirement, plan, now=now)
            subresource = None  # Volcano declares no status subresource
        elif key.resource == WORKLOAD_POD_GROUPS:
            update, subresource = kubernetes.next_status(group, members, requirement, plan, now=now), "status"
        else:
            update, subresource = coscheduling.next_status(group, members, requirement, now=now), "status"
        if update.status != (group.get("status") or {}):
            await self._api.update(
                key.resource,
                {**group, "status": update.status},
                subresource=subresource,
                options=_WRITERS[key.resource][1],
            )
        for note in update.notes:
            await self._events[key.resource].record(group, note)
        return update.requeue_after


def _queue_problem(name: str, queue: JsonObject | None) -> str:
    """Return why a queue lets nothing out; empty if it does."""
    if queue is None:
        # The default queue is made by its controller; a group need not wait for that.
        return "" if name == DEFAULT_QUEUE else f"queue {name} not found"
    state = (queue.get("status") or {}).get("state", "Open")
    return "" if state == "Open" else f"queue {name} is {state}"
