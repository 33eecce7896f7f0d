"""One decision about a group: which of its pods are bound now, and what the others are told. Pure but for the trial.

All or nothing: pods are bound only if, together with those that run already, they make the group complete. Nothing is
ever reserved for an incomplete group, so groups cannot block each other; the price is that small groups may pass a
large one again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainmaster.devcluster.scheduler.fit import explain
from trainmaster.devcluster.scheduler.gangs.members import TASK_ANNOTATION, Roster
from trainmaster.devcluster.scheduler.reservations import Placement, Trial, unavailable
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity
from trainmaster.runtime.resource_requirements import Resources, pod_requests

Verdict = Literal["Complete", "TooFewPods", "TooFewResources"]
"""The group has, or gets now, what it needs; or it lacks pods; or it lacks room."""

_ZERO = Quantity.parse(0)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a group asks for."""

    members: int = 1
    tasks: dict[str, int] = field(default_factory=dict)
    """Numbers of pods by task (Volcano)."""
    resources: Resources = field(default_factory=dict)

    def is_met(self, pods: Sequence[JsonObject]) -> bool:
        """Tell whether these pods are enough."""
        if len(pods) < self.members:
            return False
        names = [(pod["metadata"].get("annotations") or {}).get(TASK_ANNOTATION) for pod in pods]
        return all(names.count(task) >= count for task, count in self.tasks.items())


def requirement_of(group: JsonObject) -> Requirement:
    """Read the spec of a group of either dialect."""
    spec = group.get("spec") or {}
    resources = {name: Quantity.parse(value) for name, value in (spec.get("minResources") or {}).items()}
    return Requirement(max(spec.get("minMember", 1), 0), dict(spec.get("minTaskMember") or {}), resources)


@dataclass(slots=True)
class Decision:
    """What to do with the waiting pods of a group."""

    verdict: Verdict
    message: str = ""
    """What keeps the group from starting."""
    bind: list[Placement] = field(default_factory=list)
    postpone: list[tuple[JsonObject, str]] = field(default_factory=list)
    stable: str | None = None
    """The part of the messages that does not change with every pod that comes."""


def decide(
    requirement: Requirement, roster: Roster, trial: Trial, *, nodes: int, waiting: Sequence[JsonObject]
) -> Decision:
    """Decide about the waiting pods, which are given in the order in which they should get their nodes."""
    if not requirement.is_met(roster.present):
        stable = unavailable("cannot find enough sibling pods", nodes).rstrip(".")
        message = f"{stable}, current pods number: {len(roster.present)}, minMember of group: {requirement.members}."
        postponed = [(pod, message) for pod in waiting]
        return Decision("TooFewPods", message, postpone=postponed, stable=stable)
    started = requirement.is_met(roster.held)
    if not started:
        lacking = trial.lacks(_still_needed(requirement.resources, roster.bound))
        if lacking:
            message = explain([[f"Insufficient {name}" for name in lacking]] * nodes, nodes)
            return Decision("TooFewResources", message, postpone=[(pod, message) for pod in waiting])
    placements = [trial.place(pod) for pod in waiting]
    placed = [each for each in placements if each.node is not None]
    refused = [each for each in placements if each.node is None]
    if requirement.is_met([*roster.held, *(each.pod for each in placed)]):
        return Decision("Complete", bind=placed, postpone=[(each.pod, each.message) for each in refused])
    message = refused[0].message
    return Decision("TooFewResources", message, postpone=[(pod, message) for pod in waiting])


def _still_needed(resources: Resources, bound: Iterable[JsonObject]) -> Resources:
    """Return what the group needs besides what its own pods use already."""
    needed = dict(resources)
    for pod in bound:
        for name, quantity in pod_requests(pod["spec"]).items():
            if name in needed:
                needed[name] = max(needed[name] - quantity, _ZERO)
    return needed
