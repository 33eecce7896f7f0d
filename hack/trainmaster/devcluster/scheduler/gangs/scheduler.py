"""Scheduling of groups: carries out what `planning` decides, and writes the status of the group.

- A group is looked at when one of its pods or the group itself changes, and when room becomes free.
- Everything is read from the stored pods and groups, so a restart between two bindings loses nothing: a group that was
  caught half bound comes before all others.
- A pod of a group that does not exist (yet) waits.
"""

from __future__ import annotations

from collections.abc import Callable

from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import NODES, POD_GROUPS, VOLCANO_POD_GROUPS, VOLCANO_QUEUES
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.controllers.client import find
from trainmaster.devcluster.events import EventRecorder
from trainmaster.devcluster.scheduler.binding import Binder
from trainmaster.devcluster.scheduler.devices import DeviceTrial
from trainmaster.devcluster.scheduler.fit import rank
from trainmaster.devcluster.scheduler.gangs import coscheduling, volcano
from trainmaster.devcluster.scheduler.gangs.members import MemberIndex, Roster, roster_of
from trainmaster.devcluster.scheduler.gangs.plan import Decision, decide, requirement_of
from trainmaster.devcluster.scheduler.reservations import Ledger, Trial, unavailable
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resource_requirements import Resources

GROUP_RESOURCES = (POD_GROUPS, VOLCANO_POD_GROUPS)
_WRITERS = {
    POD_GROUPS: ("scheduler-plugins-controller", WriteOptions(field_manager="scheduler-plugins-controller")),
    VOLCANO_POD_GROUPS: ("vc-scheduler", WriteOptions(field_manager="vc-scheduler")),
}


class GangScheduler:
    """Binds the pods of groups; its caller tells it when to look at which group."""

    def __init__(
        self, api: Api, *, members: MemberIndex, ledger: Ledger, binder: Binder, serves: Callable[[JsonObject], bool]
    ) -> None:
        self._api = api
        self._members = members
        self._ledger = ledger
        self._binder = binder
        self._serves = serves
        self._events = {resource: EventRecorder(api, name) for resource, (name, _) in _WRITERS.items()}

    def roster(self, key: ObjectKey) -> Roster:
        """Return the pods of a group that are this scheduler's business."""
        return roster_of([pod for pod in self._members.of(key) if self._serves(pod)])

    async def reconcile(self, key: ObjectKey) -> tuple[bool, float | None]:
        """Bring one group forward; tells whether pods are left waiting, and when to look again."""
        group, roster = find(self._api, key), self.roster(key)
        for pod in roster.bound:
            await self._binder.confirm(pod)
        nodes = [record.object for record in self._api.store.list(NODES)]
        if group is None:
            text = unavailable(f"PodGroup {key.namespace}/{key.name} not found", len(nodes))
            for pod in roster.waiting:
                await self._binder.postpone(pod, text)
            return False, None  # its creation is an event
        decision, admitted = self._decide(key, group, roster, nodes)
        for placement in decision.bind:
            await self._binder.bind(placement)
        for pod, message in decision.postpone:
            await self._binder.postpone(pod, message, stable=decision.stable)
        again = None
        if not decision.bind:  # else the bound pods cause another look, with their new state
            again = await self._write_status(key, group, roster, decision, admitted=admitted)
        return bool(decision.postpone), again

    def _decide(
        self, key: ObjectKey, group: JsonObject, roster: Roster, nodes: list[JsonObject]
    ) -> tuple[Decision, bool]:
        requirement = requirement_of(group)
        trial = Trial(nodes, self._ledger, DeviceTrial(self._api))
        problem = self._queue_problem(group) if key.resource == VOLCANO_POD_GROUPS else None
        if problem is not None:
            text = unavailable(problem, len(nodes))
            return Decision("TooFewResources", text, postpone=[(pod, text) for pod in roster.waiting]), False
        admitted = not trial.lacks(_besides(requirement.resources, roster))
        waiting = sorted(roster.waiting, key=rank)
        return decide(requirement, roster, trial, nodes=len(nodes), waiting=waiting), admitted

    def _queue_problem(self, group: JsonObject) -> str | None:
        name = (group.get("spec") or {}).get("queue") or volcano.DEFAULT_QUEUE
        queue = find(self._api, ObjectKey(VOLCANO_QUEUES, "", name))
        if queue is None:
            # The default queue is made by its controller; a group need not wait for that.
            return None if name == volcano.DEFAULT_QUEUE else f"queue {name} not found"
        state = (queue.get("status") or {}).get("state", "Open")
        return None if state == "Open" else f"queue {name} is {state}"

    async def _write_status(
        self, key: ObjectKey, group: JsonObject, roster: Roster, decision: Decision, *, admitted: bool
    ) -> float | None:
        requirement, now = requirement_of(group), self._api.clock()
        if key.resource == VOLCANO_POD_GROUPS:
            progress = volcano.progress_of(group, roster, requirement, decision, admitted=admitted, now=now)
            subresource = None  # Volcano declares no status subresource
        else:
            progress = coscheduling.progress_of(group, roster, requirement, now=now)
            subresource = "status"
        if progress.status != (group.get("status") or {}):
            await self._api.update(
                key.resource,
                {**group, "status": progress.status},
                namespace=key.namespace,
                name=key.name,
                subresource=subresource,
                options=_WRITERS[key.resource][1],
            )
        for note in progress.notes:
            await self._events[key.resource].record(group, note)
        return progress.look_again


def _besides(resources: Resources, roster: Roster) -> Resources:
    """Return what a group needs to be admitted; one that has started was admitted."""
    return {} if roster.bound else resources
