"""Whether a PodGroup of Volcano may leave its queue: what the groups before it hold of the queue and the cluster. Pure.

A group that was let in holds what its pods use and, until they have started, at least its `minResources`. So a group
comes in only if all that are in can start, and it beside them. Without `minResources` a group always comes in.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trainmaster.devcluster.controllers.volcanoqueue import DEFAULT_QUEUE
from trainmaster.devcluster.scheduler.gangs.pod_group import PodGroupMembers, requirement_of
from trainmaster.devcluster.scheduler.node_info import Snapshot
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests

PENDING, INQUEUE = "Pending", "Inqueue"
QUOTA_EXCEEDED = "queue resource quota insufficient"
CLUSTER_OVERUSED = "resource in cluster is overused"

_ZERO = Quantity.parse(0)


class Neighbour(NamedTuple):
    """Another group, with its pods."""

    group: JsonObject
    members: PodGroupMembers


def is_enqueued(group: JsonObject, members: PodGroupMembers) -> bool:
    """Tell whether a group has left its queue; one with pods on a node has, whatever its status says."""
    return bool(members.bound) or (group.get("status") or {}).get("phase", PENDING) not in ("", PENDING)


def is_enqueued_only(group: JsonObject) -> bool:
    """Tell whether a group has left its queue and not started yet."""
    return bool((group.get("status") or {}).get("phase") == INQUEUE)


def queue_of(group: JsonObject) -> str:
    """Return the name of the queue of a group."""
    name: str = (group.get("spec") or {}).get("queue") or DEFAULT_QUEUE
    return name


def enqueue_problem(
    group: JsonObject, queue: JsonObject | None, neighbours: Iterable[Neighbour], snapshot: Snapshot
) -> str:
    """Return why a group has to stay in its queue, in Volcano's words; empty if it may leave."""
    wanted = requirement_of(group).min_resources
    if not wanted:
        return ""
    held, owed = dict[str, Quantity](), dict(wanted)
    for each in neighbours:
        used = _used(each.members)
        waiting = requirement_of(each.group).min_resources if is_enqueued_only(each.group) else {}
        _add(owed, {name: max(amount - used.get(name, _ZERO), _ZERO) for name, amount in waiting.items()})
        if queue_of(each.group) == queue_of(group):
            names = used.keys() | waiting.keys()
            _add(held, {name: max(used.get(name, _ZERO), waiting.get(name, _ZERO)) for name in names})
    capability = capability_of(queue)
    if any(held.get(name, _ZERO) + amount > capability[name] for name, amount in wanted.items() if name in capability):
        return QUOTA_EXCEEDED
    # That others lack what this group does not ask for is no obstacle.
    return CLUSTER_OVERUSED if snapshot.insufficient({name: owed[name] for name in wanted}) else ""


def left_of(queue: JsonObject | None, members: Iterable[PodGroupMembers]) -> Resources:
    """Return what the pods of a queue may still take, for the resources that its capability limits."""
    left = capability_of(queue)
    for each in members:
        for name, amount in _used(each).items():
            if name in left:
                left[name] = max(left[name] - amount, _ZERO)
    return left


def capability_of(queue: JsonObject | None) -> dict[str, Quantity]:
    """Return the most that the pods of a queue may use; what is not named is not limited."""
    spec = (queue or {}).get("spec") or {}
    return {name: Quantity.parse(value) for name, value in (spec.get("capability") or {}).items()}


def _used(members: PodGroupMembers) -> Resources:
    used: dict[str, Quantity] = {}
    for pod in members.bound:
        _add(used, pod_requests(pod["spec"]))
    return used


def _add(total: dict[str, Quantity], amounts: Resources) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, _ZERO) + amount
