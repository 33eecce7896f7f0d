"""The status of a job while a plan works it out: conditions, times, replica statuses, and what is told of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from trainmaster.controller.conditions import BLOCKED
from trainmaster.controller.kube.clock import time_text
from trainmaster.controller.reconciling.problems import Problem
from trainmaster.controller.reconciling.writes import JobEvent
from trainmaster.metrics.jobs import JobCounter
from trainmaster.runtime.jobs.condition_list import Conditions
from trainmaster.runtime.jobs.constants import CREATED, FAILED, RESTARTING, RUNNING, SUCCEEDED, SUSPENDED
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job
from trainmaster.runtime.jobs.labels import replica_selector
from trainmaster.runtime.jobs.types import ReplicaStatus
from trainmaster.runtime.jsontree import JsonObject, copy_tree

_COUNTS: Final = ("active", "succeeded", "failed")


class StatusUpdate:
    """The next status of a job."""

    def __init__(self, job: Job, now: datetime) -> None:
        self.job = job
        self._now = time_text(now)
        self._status: JsonObject = copy_tree(job.status)
        self._conditions = Conditions(self._status.get("conditions") or [], self._now)
        self.events: list[JobEvent] = []
        """What happened, in order."""

        self.counts: list[JobCounter] = []
        """Which counters of jobs go up: `created`, `successful`, `failed`."""

    @property
    def has_succeeded(self) -> bool:
        """Whether the job has succeeded."""
        return self._conditions.is_true(SUCCEEDED)

    @property
    def is_finished(self) -> bool:
        """Whether the job has succeeded or failed."""
        return self.has_succeeded or self._conditions.is_true(FAILED)

    def created(self) -> None:
        """Note that the job was seen."""
        job = self.job
        if self._conditions.get(CREATED) is None and not self.is_finished:
            self._conditions.set(CREATED, self._reason(CREATED), f"{job.kind.kind} {job.name} is created.")
            self.counts.append("created")

    def started(self, *, again: bool = False) -> None:
        """Note that pods were to be created; `again`: after a suspension."""
        if again or not self._status.get("startTime"):
            self._status["startTime"] = self._now

    def not_started(self) -> None:
        """Note that no pods could be created after all: the time of the job has not begun, unless it goes on."""
        if not self.job.status.get("startTime"):
            self._status.pop("startTime", None)
            self._status.pop("replicaStatuses", None)

    def suspended(self) -> None:
        """Note that the job is suspended."""
        message = f"{self.job.kind.kind} {self.job.name} is suspended."
        reason = self._reason(SUSPENDED)
        if self._conditions.is_true(RUNNING):
            self._conditions.set(RUNNING, reason, message, status="False")
        if self._conditions.set(SUSPENDED, reason, message):
            self.events.append(JobEvent(reason, message))
        for status in (self._status.get("replicaStatuses") or {}).values():
            status.pop("active", None)

    def resumed(self) -> None:
        """Note that the job is not suspended any more, if it was."""
        if not self._conditions.is_true(SUSPENDED):
            return
        reason, message = self._reason("Resumed"), f"{self.job.kind.kind} {self.job.name} is resumed."
        self._conditions.set(SUSPENDED, reason, message, status="False")
        self.events.append(JobEvent(reason, message))
        self.started(again=True)

    def set(self, update: ConditionUpdate, *, warning: bool = False) -> None:
        """Note a condition that holds from now on."""
        reason = update.reason or self._reason(update.type)
        if not self._conditions.set(update.type, reason, update.message):
            return
        if update.type in (SUCCEEDED, FAILED):
            self._status.setdefault("completionTime", self._now)
            self.counts.append("successful" if update.type == SUCCEEDED else "failed")
        if update.type == RUNNING:
            return
        is_warning = warning or update.type == RESTARTING
        self.events.append(JobEvent(reason, update.message, "Warning" if is_warning else "Normal"))

    def fail(self, message: str, *, warning: bool = False) -> None:
        """Note that the job has failed."""
        self.set(ConditionUpdate(FAILED, message), warning=warning)

    def restarting(self, replica_type: str) -> JobEvent:
        """Note that failed replicas of a type are replaced; returns the event of that."""
        message = f"job {self.job.name} is restarting because {replica_type} replica(s) failed."
        self._conditions.set(RESTARTING, self._reason(RESTARTING), message)
        return JobEvent(self._reason(RESTARTING), message, "Warning")

    def replicas(self, replicas: Mapping[str, ReplicaStatus], more: Mapping[str, JsonObject]) -> None:
        """Note how many replicas of each type are in which state; `more` are further fields by type."""
        kind = self.job.kind
        statuses: JsonObject = {}
        for replica_type, status in replicas.items():
            counts = {name: getattr(status, name) for name in _COUNTS}
            selector = {"selector": replica_selector(self.job, replica_type)} if kind.scale_type else {}
            statuses[replica_type] = {
                **{name: count for name, count in counts.items() if count},
                **selector,
                **more.get(replica_type, {}),
            }
        self._status["replicaStatuses"] = statuses

    def active_have_succeeded(self) -> None:
        """Count what was active when the job succeeded as succeeded."""
        for status in (self._status.get("replicaStatuses") or {}).values():
            active = status.pop("active", 0)
            if active:
                status["succeeded"] = (status.get("succeeded") or 0) + active

    def blocked(self, problem: Problem | None) -> None:
        """Note what stands in the way of the job; None: nothing does."""
        if problem is None or self.is_finished:
            self._conditions.remove(BLOCKED)
            return
        told = problem.condition()
        self._conditions.put(BLOCKED, told["reason"], told["message"])

    def to_json(self) -> JsonObject:
        """Return the status as it is to be stored."""
        conditions = self._conditions.to_json()
        return {**self._status, "conditions": conditions} if conditions else self._status

    def _reason(self, word: str) -> str:
        return f"{self.job.kind.kind}{word}"


def only_counters(old: JsonObject, new: JsonObject) -> bool:
    """Tell whether two statuses differ in nothing but how many replicas are in which state."""
    if {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)} != {"replicaStatuses"}:
        return False
    return _without_counts(old) == _without_counts(new)


def _without_counts(status: JsonObject) -> JsonObject:
    statuses = status.get("replicaStatuses") or {}
    return {
        replica_type: {name: value for name, value in each.items() if name not in _COUNTS}
        for replica_type, each in statuses.items()
    }
