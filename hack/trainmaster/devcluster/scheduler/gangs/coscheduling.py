"""The status of a PodGroup of the coscheduling plugin (`scheduling.x-k8s.io`). Pure.

Pending: pods are missing. Scheduling: they wait for room. Scheduled: enough have a node. Running, Finished and Failed
say what became of them; both ends last until new pods of the group appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.objects import parse_time
from trainmaster.devcluster.events import Note
from trainmaster.devcluster.scheduler.gangs.members import Roster
from trainmaster.devcluster.scheduler.gangs.plan import Requirement
from trainmaster.runtime.jsontree import JsonObject

PENDING = "Pending"
SCHEDULING = "Scheduling"
SCHEDULED = "Scheduled"
RUNNING = "Running"
FINISHED = "Finished"
FAILED = "Failed"


@dataclass(slots=True)
class Progress:
    """The status that a group should have, and what goes with it."""

    status: JsonObject
    notes: list[Note] = field(default_factory=list)
    look_again: float | None = None
    """Seconds after which time itself changes the status."""


def progress_of(group: JsonObject, roster: Roster, requirement: Requirement, *, now: datetime) -> Progress:
    """Return the status that follows from the pods of a group."""
    known: JsonObject = group.get("status") or {}
    if known.get("phase") in (FINISHED, FAILED) and not roster.is_active:
        return Progress(known)  # what its pods did stays true when they are cleaned away
    counts = {"running": roster.running, "succeeded": len(roster.succeeded), "failed": len(roster.failed)}
    status = {key: value for key, value in known.items() if key not in counts}
    phase = _phase(roster, requirement)
    status |= {name: count for name, count in counts.items() if count}
    status["phase"] = phase
    if phase != PENDING and "occupiedBy" not in status:
        owners = _owners(roster.present or roster.failed)
        status |= {"occupiedBy": owners} if owners else {}
    progress = Progress(status)
    if phase == SCHEDULING:
        _watch_time(progress, group, requirement, now=now)
    return progress


def _phase(roster: Roster, requirement: Requirement) -> str:
    if not roster.is_active:
        if roster.succeeded and requirement.is_met(roster.succeeded):
            return FINISHED
        if roster.failed:
            return FAILED
    if requirement.is_met(roster.held):
        started = roster.running + len(roster.succeeded) >= requirement.members
        return RUNNING if started else SCHEDULED
    return SCHEDULING if requirement.is_met(roster.present) else PENDING


def _watch_time(progress: Progress, group: JsonObject, requirement: Requirement, *, now: datetime) -> None:
    """Limit the time of one attempt; when it is over, say so and begin the next one."""
    status, seconds = progress.status, (group.get("spec") or {}).get("scheduleTimeoutSeconds")
    started = status.setdefault("scheduleStartTime", timestamp(now))
    if not seconds or seconds <= 0:
        return
    left = (parse_time(started) + timedelta(seconds=seconds) - now).total_seconds()
    if left <= 0:
        text = f"{requirement.members} pods could not be scheduled together within {seconds}s; trying again"
        progress.notes.append(Note("Warning", "Timeout", text))
        status["scheduleStartTime"] = timestamp(now)
        left = float(seconds)
    progress.look_again = left


def _owners(pods: Sequence[JsonObject]) -> str:
    """Name the owners of the first pod, as the plugin does."""
    if not pods:
        return ""
    metadata = pods[0]["metadata"]
    return ",".join(sorted(f"{metadata['namespace']}/{each['name']}" for each in metadata.get("ownerReferences") or ()))
