"""The group: all pods of a job with a resilience policy, which end together and are made anew together. Pure.

Rules:

- The first pod that fails or is disrupted ends the attempt. Once all pods were there, one that is deleted, or gone,
  does so as well.
- The ledger of the attempts is an annotation of the job. That an attempt has ended is written there first; what follows
  is told by it and by the pods, each of which has the number of its attempt: those of earlier ones are deleted, and
  when they are gone the next ones are made. So a crash between any two writes charges a failure once.
- Before that, other pods may have more to tell for `PATIENCE` seconds: who lost a peer is not why the attempt ended,
  nor is the launcher of MPI if a worker has failed.
- That a job fails is in the ledger too, so that it does although the window of its failures passes meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from trainmaster.controller.container_failures import disruption_of
from trainmaster.controller.explain.pods import phase_of
from trainmaster.controller.reconciling.jobs.objects import Plan
from trainmaster.controller.reconciling.jobs.replicas import Replicas, is_terminating
from trainmaster.controller.reconciling.writes import JobEvent
from trainmaster.controller.resilience.attempts import facts_of_group, was_deleted
from trainmaster.controller.resilience.ledger import judge_group
from trainmaster.runtime.api.constants import ATTEMPTS_BEFORE_LABEL, RESILIENCE_STATUS_ANNOTATION
from trainmaster.runtime.api.resilience import ResiliencePolicy
from trainmaster.runtime.jobs.constants import RESTARTING
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job
from trainmaster.runtime.jobs.pods import trainer_of
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resilience import group_ledger

_PODS: Final = "pods"
_FAILURE: Final = "failure"


@dataclass(frozen=True, slots=True)
class Group:
    """The pods of a job that are restarted together.

    Attributes:
        pods: Those of the attempt, by name.
        former: Those of earlier attempts.
    """

    job: Job
    policy: ResiliencePolicy
    ledger: JsonObject
    pods: Mapping[str, JsonObject]
    former: Sequence[JsonObject]

    @property
    def failure(self) -> str:
        """Why the job fails; empty: it does not."""
        return str(self.ledger.get(_FAILURE) or "")

    def plan_ledger(self, replicas: Sequence[Replicas], planned: Plan, now: datetime) -> bool:
        """Plan what is to be written down of the attempt; returns whether that comes before everything else."""
        pods = [pod for each in replicas for pod in each.pods]
        missing = [each.names[index] for each in replicas for index in each.missing]
        count, wanted = self.ledger.get(_PODS) or 0, len(pods) + len(missing)
        is_short = len(pods) < min(count, wanted)
        if not count:
            # Who is deleted now is made again, as are those that go because of a suspension; disruptions say so.
            pods = [pod for pod in pods if not is_terminating(pod) or disruption_of(pod)]
        if is_short or any(phase_of(pod) == "Failed" or was_deleted(pod) for pod in pods):
            self._plan_end(pods, missing if is_short else [], planned, now)
            return True
        if len(pods) == wanted != count and not self.former:
            self._plan_write(planned, {**self.ledger, _PODS: wanted})
        return bool(planned.annotations)

    def _plan_end(self, pods: Sequence[JsonObject], missing: Sequence[str], planned: Plan, now: datetime) -> None:
        facts, seconds = facts_of_group(pods, missing, now)
        if seconds:
            planned.held_for = seconds
            return
        trainers = {trainer_of(self.job, each) for each in self.job.replica_specs}
        is_trainer = facts.failure is not None and facts.failure.container in trainers
        verdict = judge_group(self.policy, self.ledger, facts, is_trainer=is_trainer, now=now)
        ledger = {**verdict.status, _PODS: 0}
        if verdict.failure is not None:
            ledger[_FAILURE] = verdict.failure[1]
        else:
            planned.replaced = [[pod for pod in pods if phase_of(pod) == "Failed"]]
        self._plan_write(planned, ledger)
        planned.events = [JobEvent(reason, note, "Warning") for reason, note in verdict.events]

    def plan_restart(self, planned: Plan) -> list[ConditionUpdate]:
        """Delete the pods of earlier attempts; returns what holds meanwhile."""
        if not self.former:
            return []
        planned.deletes += [pod for pod in self.former if not is_terminating(pod)]
        why = (self.ledger.get("attempts") or [{}])[-1].get("message")
        return [ConditionUpdate(RESTARTING, f"job {self.job.name} is restarting because {why}")]

    def plan_suspension(self, planned: Plan) -> bool:
        """Write down that the pods go without a fault; returns whether that comes before everything else."""
        if self.ledger.get(_PODS):
            self._plan_write(planned, {**self.ledger, _PODS: 0})
        return bool(planned.annotations)

    def _plan_write(self, planned: Plan, ledger: JsonObject) -> None:
        text = orjson.dumps({**ledger, "uid": self.job.metadata.uid}, option=orjson.OPT_SORT_KEYS).decode()
        planned.annotations = {RESILIENCE_STATUS_ANNOTATION: text}


def group_of(job: Job, pods: Mapping[str, JsonObject]) -> Group | None:
    """Return the group of a job; None if its replicas are restarted one by one."""
    if job.resilience is None or not job.restarts_together:
        return None
    ended = job.resilience.attempts
    current = {name: pod for name, pod in pods.items() if _attempts_before(pod, ended) >= ended}
    former = [pod for name, pod in pods.items() if name not in current]
    return Group(job, job.resilience.policy, group_ledger(job.metadata.annotations, job.metadata.uid), current, former)


def _attempts_before(pod: JsonObject, ended: int) -> int:
    """Return how many attempts had ended before a pod; one that was made before there was a policy is of the last."""
    text = (pod["metadata"].get("labels") or {}).get(ATTEMPTS_BEFORE_LABEL) or ""
    return int(text) if text.isdecimal() else ended
