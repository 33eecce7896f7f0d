"""The status of a PodGroup of the coscheduling plugin (`scheduling.x-k8s.io`). Pure.

Pending: pods are missing. Scheduling: they wait for room. Scheduled: enough have a node. Running, Finished and Failed
say what became of them; both ends last until new pods of the group appear.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from trainmaster.devcluster.apiserver.registry.times import timestamp
from trainmaster.devcluster.controllers.objects import parse_time
from trainmaster.devcluster.events import Note
from trainmaster.devcluster.scheduler.gangs.pod_group import PodGroupMembers, PodGroupRequirement, StatusUpdate
from trainmaster.runtime.jsontree import JsonObject

PENDING = "Pending"
SCHEDULING = "Scheduling"
SCHEDULED = "Scheduled"
RUNNING = "Running"
FINISHED = "Finished"
FAILED = "Failed"


def next_status(
    group: JsonObject, members: PodGroupMembers, requirement: PodGroupRequirement, *, now: datetime
) -> StatusUpdate:
    """Return the status that follows from the pods of a group."""
    known: JsonObject = group.get("status") or {}
    if known.get("phase") in (FINISHED, FAILED) and not members.is_active:
        return StatusUpdate(known)  # what its pods did stays true when they are cleaned away
    counts = {"running": members.running, "succeeded": len(members.succeeded), "failed": len(members.failed)}
    status = {key: value for key, value in known.items() if key not in counts}
    phase = _phase(members, requirement)
    status |= {name: count for name, count in counts.items() if count}
    status["phase"] = phase
    if phase != PENDING and "occupiedBy" not in status:
        owners = _owners(members.present or members.failed)
        status |= {"occupiedBy": owners} if owners else {}
    update = StatusUpdate(status)
    if phase == SCHEDULING:
        _apply_schedule_timeout(update, group, requirement, now=now)
    return update


def _phase(members: PodGroupMembers, requirement: PodGroupRequirement) -> str:
    if not members.is_active:
        if members.succeeded and requirement.is_met_by(members.succeeded):
            return FINISHED
        if members.failed:
            return FAILED
    if requirement.is_met_by(members.scheduled):
        started = members.running + len(members.succeeded) >= requirement.min_member
        return RUNNING if started else SCHEDULED
    return SCHEDULING if requirement.is_met_by(members.present) else PENDING


def _apply_schedule_timeout(
    update: StatusUpdate, group: JsonObject, requirement: PodGroupRequirement, *, now: datetime
) -> None:
    """Limit the time of one attempt; when it is over, say so and begin the next one."""
    status, seconds = update.status, (group.get("spec") or {}).get("scheduleTimeoutSeconds")
    started = status.setdefault("scheduleStartTime", timestamp(now))
    if not seconds or seconds <= 0:
        return
    left = (parse_time(started) + timedelta(seconds=seconds) - now).total_seconds()
    if left <= 0:
        text = f"{requirement.min_member} pods could not be scheduled together within {seconds}s; trying again"
        update.notes.append(Note("Warning", "Timeout", text))
        status["scheduleStartTime"] = timestamp(now)
        left = float(seconds)
    update.requeue_after = left


def _owners(pods: Sequence[JsonObject]) -> str:
    """Name the owners of the first pod, as the plugin does."""
    if not pods:
        return ""
    metadata = pods[0]["metadata"]
    return ",".join(sorted(f"{metadata['namespace']}/{each['name']}" for each in metadata.get("ownerReferences") or ()))
