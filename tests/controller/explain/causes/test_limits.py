"""DeadlineExceeded, BackoffLimitExceeded, TimeToLiveExpired; and what the status tells where the pods are gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from support.job_views import condition, event, job, jobset, moment, pending, pytorchjob, running, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.limits import seconds_to_live
from trainmaster.controller.explain.explanation import explain

DEADLINE = condition("Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline", since=60)


def test_the_deadline_of_a_job_says_how_much_of_it_went_by_before_all_pods_had_started() -> None:
    # A deadline says how much of it went by before all pods had started.
    pods = [running(0, started=10), running(1, started=50)]
    (first,) = explain(view(trainjob(DEADLINE, activeDeadlineSeconds=60), jobsets=[], pods=pods)).findings
    assert first.cause is Cause.DEADLINE_EXCEEDED
    assert [each.text for each in first.evidence] == [
        "DeadlineExceeded: TrainJob exceeded its active deadline",
        "activeDeadlineSeconds is 60; 50 s of that went by until all of its pods had started",
    ]
    assert "trainmaster restart demo -n team" in first.what_next[1]
    # Of a pod that never started no time is told by which all had.
    pods = [running(0, started=10), pending(1)]
    found = explain(view(trainjob(DEADLINE, activeDeadlineSeconds=60), jobsets=[], pods=pods)).findings
    assert "activeDeadlineSeconds is 60" in [each.text for each in found[-1].evidence]
    # What kept a job from starting comes before its deadline.
    told = "pods is forbidden: exceeded quota: team, requested: pods=1"
    blocked = condition("Blocked", "ApplyFailed", told, since=1)
    found = explain(view(trainjob(DEADLINE, blocked), jobsets=[jobset()], pods=[pending(0)])).findings
    assert [each.cause for each in found] == [Cause.QUOTA_EXCEEDED, Cause.DEADLINE_EXCEEDED]


def test_a_deadline_of_a_job_of_the_runtime_or_of_kubeflow_org_is_one_too() -> None:
    # The deadline of a job of the runtime is one too.
    failed = condition("Failed", "FailedJobs", "jobset failed due to one or more job failures", since=60)
    of_job = job(condition("Failed", "DeadlineExceeded", "Job was active longer than specified deadline", since=59))
    found = explain(view(trainjob(failed), jobsets=[jobset()], jobs=[of_job], pods=[])).findings
    assert found[0].cause is Cause.DEADLINE_EXCEEDED
    # The deadline of a job of kubeflow org is told.
    told = "Job demo has failed because it was active longer than specified deadline"
    failed = condition("Failed", "PyTorchJobFailed", told)
    (of_v1,) = explain(view(pytorchjob(failed, activeDeadlineSeconds=5), pods=[])).findings
    assert of_v1.cause is Cause.DEADLINE_EXCEEDED
    assert "spec.runPolicy.activeDeadlineSeconds" in of_v1.what_next[1]


def test_a_limit_of_restarts_says_which_one_it_was() -> None:
    failed = condition("Failed", "FailedJobs", "jobset failed due to one or more job failures", since=60)
    reason = condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit", since=59)
    of_jobset = condition("Failed", "FailedJobs", "jobset failed", since=60)
    found = explain(view(trainjob(failed), jobsets=[jobset(of_jobset)], jobs=[job(reason)], pods=[])).findings
    assert found[0].cause is Cause.BACKOFF_LIMIT_EXCEEDED
    assert [each.text for each in found[0].evidence] == [
        "BackoffLimitExceeded: Job has reached the specified backoff limit; backoffLimit is 3, failed pods: 0",
        "is not to be restarted: FailedJobs: jobset failed",
    ]


def test_a_limit_of_a_job_of_kubeflow_org_is_told() -> None:
    (found,) = explain(
        view(pytorchjob(condition("Failed", "X", "PyTorchJob demo: backoffLimit reached")), pods=[])
    ).findings
    assert found.cause is Cause.BACKOFF_LIMIT_EXCEEDED


FAILURE = (
    "jobset failed due to one or more job failures; attempt 0: rank 2 (pod demo-node-0-2-x, container node) failed at "
    "2026-01-01T00:00:40Z with exit code {}: {}"
)


@pytest.mark.parametrize(
    ("code", "words", "cause"),
    [
        ("137 (OOMKilled: it needed more memory than its limit)", "", Cause.OUT_OF_MEMORY),
        ("1", "RuntimeError: boom", Cause.CONTAINER_FAILED),
        ("1", "socket.gaierror: [Errno -2] Name or service not known", Cause.NAME_RESOLUTION_FAILED),
        ("137 (killed: SIGKILL)", "PreemptionByScheduler: made room", Cause.PREEMPTED),
        ("137 (killed: SIGKILL)", "Evicted: The node was low on resource: memory", Cause.EVICTED),
        ("137 (ContainerStatusUnknown: nobody saw how it ended)", "", Cause.NODE_LOST),
    ],
)
def test_where_the_pods_are_gone_the_status_still_tells(code: str, words: str, cause: Cause) -> None:
    failed = condition("Failed", "FailedJobs", FAILURE.format(code, words), since=60)
    found = explain(view(trainjob(failed), jobsets=[], jobs=[], pods=[])).findings
    assert (found[0].cause, found[0].since) == (cause, moment(40))
    assert found[0].evidence[0].text.startswith("rank 2 (pod demo-node-0-2-x, container node) failed at")


def test_the_time_to_live_of_a_job_that_has_ended_or_is_gone() -> None:
    # A job that is gone was deleted by its time to live if the manager said so.
    events = [event("TimeToLiveExpired", "it ended at midnight and was deleted 30 s later", warning=False, first=90)]
    gone = replace(view(events=events), is_deleted=True)
    (found,) = explain(gone).findings
    assert (found.cause, found.since) == (Cause.TIME_TO_LIVE_EXPIRED, moment(90))
    gone = replace(view(events=[event("Created", warning=False)]), is_deleted=True)
    assert not explain(gone).findings
    # How long a job that has ended will be there follows from its end.
    done = condition("Complete", since=60)
    assert seconds_to_live(view(trainjob(done, ttlSecondsAfterFinished=100), now=100)) == timedelta(seconds=60)
    assert seconds_to_live(view(trainjob(done, ttlSecondsAfterFinished=10), now=100)) == timedelta()
    assert seconds_to_live(view(trainjob(done))) is None
    assert seconds_to_live(view(trainjob(ttlSecondsAfterFinished=10))) is None
