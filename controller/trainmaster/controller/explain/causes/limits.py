"""DeadlineExceeded, BackoffLimitExceeded, TimeToLiveExpired, and what breaks a resilience policy: limits of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from trainmaster.controller.conditions import TIME_TO_LIVE_EXPIRED
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.condition_causes import OF_POLICY, REACHED_MAX_RESTARTS
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, parse_time, reference_to
from trainmaster.controller.explain.pods import missing_pods, started_at
from trainmaster.controller.explain.view import JobView, condition_since, trainmaster
from trainmaster.controller.job_fields import mapping, mappings, true_conditions
from trainmaster.runtime.api.constants import DEADLINE_EXCEEDED_REASON, FAILED, MAX_RESTARTS_EXCEEDED_REASON
from trainmaster.runtime.jsontree import JsonObject

_DEADLINE: Final = re.compile(r"longer than specified deadline|active deadline|DeadlineExceeded")
_TOO_OFTEN: Final = re.compile(
    r"BackoffLimitExceeded|reached the specified backoff limit|backoffLimit|failure policy MaxRestarts|MaxRestarts"
    r"|max restarts|ReachedMaxRestarts|PodFailurePolicy|MaxFailedIndexesExceeded|FailedIndexes",
    re.IGNORECASE,
)
"""What the controllers of Jobs, of JobSets and of jobs of `kubeflow.org/v1` say."""

_EXPIRED: Final = frozenset({TIME_TO_LIVE_EXPIRED, "SuccessfulDeleteJob"})
"""Reasons of the events by which managers tell that they delete a job; the latter for those of `kubeflow.org/v1`."""

_ENDS: Final = frozenset({"Complete", "Failed", "Succeeded", "Completed"})


def deadline_exceeded(view: JobView) -> Iterator[Finding]:
    """A job that took too long, or a Job of it."""
    failed = view.conditions.get(FAILED)
    if failed is None:
        return
    words = f"{failed.get('reason')}: {failed.get('message')}"
    jobs = [job for job in view.jobs or () if _reason(job) == DEADLINE_EXCEEDED_REASON]
    if not jobs and not _DEADLINE.search(words):
        return
    since = condition_since(failed)
    evidence = [Evidence(view.reference, words, since)]
    evidence += [Evidence(reference_to(job), "took longer than its activeDeadlineSeconds") for job in jobs[:1]]
    limit = _deadline(view)
    if limit is not None:
        evidence.append(Evidence(view.reference, f"activeDeadlineSeconds is {limit}{_spent(view, since)}"))
    where = "spec.activeDeadlineSeconds" if view.is_trainjob else "spec.runPolicy.activeDeadlineSeconds"
    advice = (
        "see in the timeline what took the time",
        f"if the job needs it, raise {where} and create the job again (as it is: {trainmaster(view, 'restart')})",
    )
    yield Finding(Cause.DEADLINE_EXCEEDED, Certainty.CERTAIN, tuple(evidence), since, advice)


def _deadline(view: JobView) -> int | None:
    limit = view.run_policy.get("activeDeadlineSeconds")
    return limit if isinstance(limit, int) else None


def _spent(view: JobView, end: datetime | None) -> str:
    """Say how much of the time had passed before all pods ran, if that can still be told."""
    starts = [started_at(pod) for pod in view.pods or ()]
    known = [start for start in starts if start is not None]
    if not known or len(known) < len(starts) or missing_pods(view) or view.created is None or end is None:
        return ""
    waited = (min(max(known), end) - view.created).total_seconds()
    return f"; {waited:.0f} s of that went by until all of its pods had started"


def backoff_limit_exceeded(view: JobView) -> Iterator[Finding]:
    """A job that failed too often."""
    failed = view.conditions.get(FAILED)
    if failed is None:
        return
    words = f"{failed.get('reason')}: {failed.get('message')}"
    evidence = []
    for job in view.jobs or ():
        condition = true_conditions(job).get(FAILED)
        if (job.get("spec") or {}).get("backoffLimit") == 0:
            continue  # nothing was to be tried again
        if condition is not None and _TOO_OFTEN.search(f"{condition.get('reason')}: {condition.get('message')}"):
            told = f"{condition.get('reason')}: {condition.get('message')}{_limit(job)}"
            evidence.append(Evidence(reference_to(job), told, condition_since(condition)))
    has_limit = view.run_policy.get("backoffLimit") != 0
    for jobset in view.jobsets or ():
        condition = true_conditions(jobset).get(FAILED)
        most = ((jobset.get("spec") or {}).get("failurePolicy") or {}).get("maxRestarts") or 0
        has_limit = has_limit and (bool(most) or failed.get("reason") != REACHED_MAX_RESTARTS)
        if condition is not None:
            restarts = (jobset.get("status") or {}).get("restarts") or 0
            if not most or restarts < most:
                continue
            told = f"failed after {restarts} of {most} restarts: {condition.get('reason')}: {condition.get('message')}"
            evidence.append(Evidence(reference_to(jobset), told, condition_since(condition)))
    told_by_job = _TOO_OFTEN.search(words) is not None
    if not evidence and not (told_by_job and has_limit):
        return
    since = condition_since(failed)
    evidence.sort(key=lambda each: each.object.kind != "Job")
    if told_by_job or not evidence:
        evidence.append(Evidence(view.reference, words, since))
    where = "backoffLimit of the Jobs or failurePolicy.maxRestarts in the runtime"
    if view.is_made_by_run:
        where = "--retries of trainmaster run"
    elif view.status.get("resilience"):
        where = "maxRestarts of its resilience policy"
    elif not view.is_trainjob:
        where = "spec.runPolicy.backoffLimit, or choose a restartPolicy that restarts"
    advice = (
        "see why it failed each time; the limit is not the reason",
        f"if restarts are to be expected, raise {where}",
    )
    yield Finding(Cause.BACKOFF_LIMIT_EXCEEDED, Certainty.CERTAIN, tuple(evidence[:3]), since, advice)


def _limit(job: JsonObject) -> str:
    spec, status = job.get("spec") or {}, job.get("status") or {}
    limit = spec.get("backoffLimit")
    return f"; backoffLimit is {limit}, failed pods: {status.get('failed') or 0}" if isinstance(limit, int) else ""


def _reason(job: JsonObject) -> str:
    return str((true_conditions(job).get(FAILED) or {}).get("reason") or "")


def policy_broken(view: JobView) -> Iterator[Finding]:
    """A job that failed because of what it did against its resilience policy, at once or once too often."""
    failed = view.conditions.get(FAILED) or {}
    broken = str(failed.get("reason"))
    if broken == MAX_RESTARTS_EXCEEDED_REASON:
        attempts = mappings(mapping(view.status.get("resilience")).get("attempts"))
        broken = str(attempts[-1].get("reason")) if attempts else ""
    if (cause := OF_POLICY.get(broken)) is not None:
        since = condition_since(failed)
        evidence = Evidence(view.reference, f"{failed.get('reason')}: {failed.get('message')}", since)
        yield Finding(cause, Certainty.CERTAIN, (evidence,), since)


def time_to_live_expired(view: JobView) -> Iterator[Finding]:
    """A job that is gone because its time was over, as far as events of its end tell."""
    if not view.is_deleted:
        return
    for event in reversed(view.events or ()):
        if event.about.kind not in (view.kind, "JobSet") or event.about.name != view.name:
            continue
        if event.reason in _EXPIRED:
            evidence = Evidence(event.about, f"{event.reason}: {event.note}", event.last)
            yield Finding(Cause.TIME_TO_LIVE_EXPIRED, Certainty.CERTAIN, (evidence,), event.last)
            return


def seconds_to_live(view: JobView) -> timedelta | None:
    """Return how long a job that has ended will still be there; None if for ever, or if nobody knows."""
    limit = view.run_policy.get("ttlSecondsAfterFinished")
    ends = [condition_since(each) for name, each in view.conditions.items() if name in _ENDS]
    ended = next((each for each in ends if each is not None), None) or parse_time(view.status.get("completionTime"))
    if not isinstance(limit, int) or ended is None:
        return None
    return max(ended + timedelta(seconds=limit) - view.now, timedelta())
