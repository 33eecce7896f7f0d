"""What stands in the way of a job, as far as it, its workload and its pods tell; pure.

What `trainmaster explain` concludes of that comes first; it looks at more when it is asked for one job. What nobody
explains is told by the conditions of the job, or by the pods that wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from trainmaster.controller.cli.jobs.log_sources import members, why_no_log
from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.jobs.rows import JobRow
from trainmaster.controller.cli.terminal_text import one_line
from trainmaster.controller.container_failures import container_statuses
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.api.constants import COMPLETE, FAILED, SUSPENDED
from trainmaster.runtime.jobs.constants import CREATED, RUNNING, SUCCEEDED
from trainmaster.runtime.jsontree import JsonObject

_GOOD: Final = frozenset({COMPLETE, SUCCEEDED, CREATED, RUNNING})
"""Types of conditions that stand in nobody's way."""

_STARTING: Final = frozenset({None, "", "ContainerCreating", "PodInitializing"})
_LONGEST: Final = 500


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a job does not start, does not go on, or has failed."""

    cause: str
    """One of the causes of `trainmaster explain`, or the reason of a condition; empty if it has no name."""

    text: str
    """One line."""


def may_be_troubled(job: Job, row: JobRow) -> bool:
    """Tell whether there may be something in the way of a job, so that it is worth while to ask what."""
    if job.outcome is not None:
        return job.outcome == FAILED
    is_running = row.state == RUNNING and (row.wanted is None or row.nodes >= row.wanted)
    return not is_running or any(kind not in _GOOD for kind in job.conditions)


def trouble_of(job: Job, *, pods: Sequence[JsonObject], jobset: JsonObject | None, now: datetime) -> Trouble | None:
    """Return what stands in the way of a job; None if nothing does, or nothing tells of it."""
    if job.outcome is not None and job.outcome != FAILED:
        return None
    view = JobView(
        job.object,
        now=now,
        pods=[{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods],
        jobsets=None if jobset is None else [jobset],
    )
    for finding in explain(view).findings:
        if finding.cause != Cause.UNKNOWN:
            first = finding.evidence[0]
            # The job is named beside it, and what is told of pods says of which rank.
            of = "" if first.object.kind in (view.kind, "Pod") else f"{first.object}: "
            return Trouble(str(finding.cause), _one_line(f"{of}{first.text}"))
    return _of_conditions(job) or (None if job.outcome or job.is_suspended else _of_pods(job, pods))


def _of_conditions(job: Job) -> Trouble | None:
    conditions = job.conditions
    # That it has failed, or is suspended, says more than what was wrong before.
    for kind in (FAILED, SUSPENDED, *conditions):
        if kind in conditions and kind not in _GOOD:
            told = conditions[kind]
            reason, message = str(told.get("reason") or kind), str(told.get("message") or "")
            return Trouble(reason, _one_line(message) or kind)
    return None


def _of_pods(job: Job, pods: Sequence[JsonObject]) -> Trouble | None:
    for member in members(job, pods):
        if _is_kept(member.pod):
            return Trouble("", _one_line(f"{member.name}: {why_no_log(member.pod)}"))
    return None


def _is_kept(pod: JsonObject) -> bool:
    """Whether something keeps a pod from starting; that its containers are being created is nothing."""
    status = pod.get("status") or {}
    if status.get("phase") not in {None, "Pending", "Running"}:
        return False
    if any(each["type"] == "PodScheduled" and each["status"] == "False" for each in status.get("conditions") or ()):
        return True
    waits = [(each.get("state") or {}).get("waiting") for each in container_statuses(pod)]
    return any(waiting is not None and waiting.get("reason") not in _STARTING for waiting in waits)


def _one_line(text: str) -> str:
    return one_line(text)[:_LONGEST]
