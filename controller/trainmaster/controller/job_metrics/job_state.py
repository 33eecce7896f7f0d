"""In which state a TrainJob is and why, and what it has reached so far, from it and its JobSet. Pure.

The states are those of `trainmaster explain`; the reasons are those of conditions, as far as they are among these here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from trainmaster.controller.conditions import (
    BUILD_REJECTED,
    JOB_CREATION_FAILED,
    KIND_NOT_SERVED,
    NAME_TAKEN,
    PLUGIN_QUARANTINED,
    RUNTIME_DENIED,
    RUNTIME_NOT_FOUND,
)
from trainmaster.controller.explain.cause import Cause, Question
from trainmaster.controller.explain.condition_causes import REACHED_MAX_RESTARTS
from trainmaster.controller.explain.state import State
from trainmaster.controller.job_metrics.trainjob_facts import INVALID, TrainJobFacts
from trainmaster.controller.job_metrics.workload_facts import WorkloadFacts
from trainmaster.runtime.api.constants import (
    COMPLETE,
    DEADLINE_EXCEEDED_REASON,
    POLICY_REASONS,
    RUNTIME_NOT_SUPPORTED_REASON,
)

QUEUED: Final = "Queued"
"""The reason of a suspended TrainJob that waits for its queue."""

OTHER_REASON: Final = "Other"

_CAUSES: Final = tuple(
    cause
    for cause in Cause
    if cause not in (Cause.SUSPENDED, Cause.MANAGER_ABSENT, Cause.ANOTHER_MANAGER_LEADS, Cause.TIME_TO_LIVE_EXPIRED)
    and cause.questions != {Question.FAILED}
)
"""Those that a manager at work may tell of a job that has not ended."""

REASONS: Final[Mapping[State, tuple[str, ...]]] = {
    State.WAITING: (
        "", *_CAUSES, "ApplyFailed", BUILD_REJECTED, JOB_CREATION_FAILED, KIND_NOT_SERVED, NAME_TAKEN,
        "ObjectUnreadable", "OtherWorkload", PLUGIN_QUARANTINED, "PolicyUnserved", RUNTIME_DENIED,
        "RuntimeInvalid", RUNTIME_NOT_FOUND, "RuntimePatchInvalid", "RuntimeSnapshotInvalid", INVALID, "WorkloadGone",
        OTHER_REASON,
    ),
    State.SUSPENDED: ("", QUEUED),
    State.RUNNING: ("",),
    State.RESTARTING: ("", *_CAUSES, OTHER_REASON),
    State.COMPLETE: ("",),
    State.FAILED: (
        "", DEADLINE_EXCEEDED_REASON, RUNTIME_NOT_SUPPORTED_REASON, "FailedJobs", REACHED_MAX_RESTARTS,
        "FailJobSetFailurePolicyAction", *POLICY_REASONS, OTHER_REASON,
    ),
    State.TERMINATING: ("",),
}  # fmt: skip
"""All reasons of each state; empty: there is none to give."""

# Their texts: a member of an enumeration is slow to hash, and its value slow to get.
RUNNING_STATE: Final = State.RUNNING.value
SUSPENDED_STATE: Final = State.SUSPENDED.value
WAITING_STATE: Final = State.WAITING.value
_COMPLETE: Final = State.COMPLETE.value
_FAILED: Final = State.FAILED.value
_RESTARTING: Final = State.RESTARTING.value
_TERMINATING: Final = State.TERMINATING.value
_KNOWN: Final = {state.value: frozenset(reasons) for state, reasons in REASONS.items()}


Milestones: TypeAlias = int
"""What a TrainJob reaches once: a sum of the following. Plain numbers, because this is computed for each event."""

JOBSET: Final[Milestones] = 1
RUNNING: Final[Milestones] = 2
PROGRESS: Final[Milestones] = 4
END: Final[Milestones] = 8


def state_of(job: TrainJobFacts, workload: WorkloadFacts | None, *, has_run: bool) -> tuple[str, str]:
    """Return the state and its reason.

    Args:
        workload: Its JobSet, if there is one.
        has_run: Whether all of its pods ran at once before.
    """
    if job.end:
        return (_COMPLETE, "") if job.end == COMPLETE else _known(_FAILED, job.end_reason)
    if job.is_terminating:
        return _TERMINATING, ""
    if workload is not None and workload.is_ready and not job.wants_suspend:
        return RUNNING_STATE, ""
    if job.blocked:
        return _known(WAITING_STATE, job.blocked)
    if job.wants_suspend:
        return SUSPENDED_STATE, QUEUED if job.queue else ""
    # What its containers failed of before matters less than what keeps them from starting now.
    reason = job.waiting or (job.failure.cause if job.failure else "")
    return _known(_RESTARTING if has_run else WAITING_STATE, reason)


def reached(job: TrainJobFacts, workload: WorkloadFacts | None) -> Milestones:
    """Return what a TrainJob has reached by now, as far as it shows now."""
    milestones = 0
    if workload is not None:
        milestones |= JOBSET
        if workload.is_ready:
            milestones |= RUNNING
    if job.progressed:
        milestones |= PROGRESS
    if job.end:
        milestones |= END
    return milestones


def perhaps_reached(job: TrainJobFacts, workload: WorkloadFacts | None) -> Milestones:
    """Return what a TrainJob that is seen for the first time may have reached before, although it shows no more.

    It has run if it has reported, failed or been restarted; and it may have if it is not in its first suspension, nor
    comes from that: its generation counts the changes of its spec.
    """
    milestones = JOBSET if job.has_jobs else 0
    restarted = workload is not None and workload.restarts > 0
    resumed_again = job.generation > (1 if job.wants_suspend else 2) and bool(job.suspension_flipped)
    if job.end or job.progressed or job.failure or restarted or resumed_again:
        milestones |= JOBSET | RUNNING
    return milestones


def _known(state: str, reason: str) -> tuple[str, str]:
    return state, reason if not reason or reason in _KNOWN[state] else OTHER_REASON
