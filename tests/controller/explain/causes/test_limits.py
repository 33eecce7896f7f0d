"""DeadlineExceeded, BackoffLimitExceeded, TimeToLiveExpired and Suspended; what the status tells without pods."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.job_views import at, condition, event, job, jobset, moment, pending, pytorchjob, running, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.told import told_to_wait
from trainmaster.controller.explain.causes.limits import seconds_to_live
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.view import Unread, WhyUnread
from trainmaster.runtime.jsontree import JsonObject

DEADLINE = condition("Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline", since=60)


def test_the_deadline_of_a_job_says_how_much_of_it_went_by_before_all_pods_had_started() -> None:
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


@pytest.mark.parametrize("reason", ["NoProgress", "LogRuleBroken", "WorldSizeMismatch"])
@pytest.mark.parametrize("end", ["", "MaxRestartsExceeded"])
def test_what_broke_the_resilience_policy_is_the_cause(reason: str, end: str) -> None:
    failed = condition("Failed", end or reason, "node 1 wrote last", since=60)
    attempts = [{"number": 0, "reason": "Failed"}, {"number": 1, "reason": reason}]
    status = {"resilience": {"attempts": attempts if end else []}}
    first = explain(view(trainjob(failed, status=status), jobsets=[], pods=[])).findings[0]
    assert (first.cause, first.evidence[0].text) == (Cause(reason), f"{end or reason}: node 1 wrote last")


def test_a_deadline_of_a_job_of_the_runtime_or_of_kubeflow_org_is_one_too() -> None:
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


def test_the_limit_of_a_resilience_policy_is_named_as_such() -> None:
    told = "it failed 2 times, maxRestarts is 1: nobody saw why: its pods were gone when the manager looked"
    failed = trainjob(condition("Failed", "MaxRestartsExceeded", told, since=60))
    failed["status"]["resilience"] = {"chargedRestarts": 2}
    (found,) = explain(view(failed, jobsets=[], pods=[])).findings
    assert found.cause is Cause.BACKOFF_LIMIT_EXCEEDED
    assert found.evidence[0].text == f"MaxRestartsExceeded: {told}"
    assert found.what_next[1] == "if restarts are to be expected, raise maxRestarts of its resilience policy"


def test_a_limit_of_restarts_says_which_one_it_was() -> None:
    failed = condition("Failed", "FailedJobs", "jobset failed due to one or more job failures", since=60)
    reason = condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit", since=59)
    of_jobset = jobset(condition("Failed", "ReachedMaxRestarts", "jobset failed", since=60))
    of_jobset["spec"]["failurePolicy"], of_jobset["status"]["restarts"] = {"maxRestarts": 2}, 2
    found = explain(view(trainjob(failed), jobsets=[of_jobset], jobs=[job(reason)], pods=[])).findings
    assert found[0].cause is Cause.BACKOFF_LIMIT_EXCEEDED
    assert [each.text for each in found[0].evidence] == [
        "BackoffLimitExceeded: Job has reached the specified backoff limit; backoffLimit is 3, failed pods: 0",
        "failed after 2 of 2 restarts: ReachedMaxRestarts: jobset failed",
    ]
    # A job that was not to be tried again has reached no limit.
    (found_of_none,) = explain(view(trainjob(failed), jobsets=[jobset()], jobs=[job(reason, backoffLimit=0)])).findings
    assert found_of_none.cause is Cause.UNKNOWN


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


SUSPENDED = condition("Suspended", since=2)


def managed(manager: str, fields: JsonObject, *, time: float = 1, **more: str) -> JsonObject:
    return {"manager": manager, "operation": "Update", "time": at(time), "fieldsV1": fields, **more}


def test_who_suspended_a_job_last_is_told_with_the_time() -> None:
    job = trainjob(SUSPENDED, suspend=True)
    suspends: JsonObject = {"f:spec": {"f:suspend": {}, "f:runtimeRef": {}}}
    job["metadata"]["managedFields"] = [
        managed("kubectl-client-side-apply", suspends, time=1),
        managed("trainmaster-cli", {"f:spec": {"f:suspend": {}}}, time=90),
        managed("trainer-status", {"f:status": {"f:suspend": {}}}, time=95, subresource="status"),
    ]
    (found,) = explain(view(job, jobsets=[jobset(suspend=True)], pods=[])).findings
    assert found.cause is Cause.SUSPENDED
    assert found.evidence[0].text == "spec.suspend is true, set by `trainmaster run` or `suspend`"
    assert found.evidence[0].at == moment(90)
    assert found.what_next == ("resume it: trainmaster resume demo -n team",)


def test_a_job_of_kubeflow_org_is_suspended_by_its_run_policy_and_a_jobset_by_others() -> None:
    job = pytorchjob(SUSPENDED, suspend=True)
    job["metadata"]["managedFields"] = [managed("argo", {"f:spec": {"f:runPolicy": {"f:suspend": {}}}})]
    (found,) = explain(view(job, pods=[])).findings
    assert found.evidence[0].text == "spec.runPolicy.suspend is true, set by argo"
    assert found.what_next == ("resume it: trainmaster resume pytorchjob/demo -n team",)
    # A jobset that somebody else suspended is told with who it was.
    suspended = jobset(suspend=True)
    suspended["metadata"]["managedFields"] = [managed("ops-bot", {"f:spec": {"f:suspend": {}}})]
    (found,) = explain(view(trainjob(), jobsets=[suspended], pods=[])).findings
    assert str(found.evidence[0].object) == "JobSet demo"
    assert found.evidence[0].text == "spec.suspend is true, set by ops-bot, and that of the job is not"


def test_a_job_in_a_queue_waits_for_kueue_where_that_is_installed() -> None:
    job = trainjob(SUSPENDED, suspend=True)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    (found,) = explain(view(job, jobsets=[], pods=[])).findings
    assert found.cause is Cause.SUSPENDED
    assert "waits in the queue research of Kueue" in found.evidence[0].text
    assert not any("trainmaster resume" in line for line in found.what_next)
    # The label of a queue means nothing where there is no Kueue.
    unread = [Unread("workloads.kueue.x-k8s.io", WhyUnread.NOT_SERVED, "not served")]
    (found,) = explain(view(job, jobsets=[], pods=[], unread=unread)).findings
    assert "has no effect: Kueue is not installed here" in found.evidence[0].text
    assert found.what_next == ("resume it: trainmaster resume demo -n team",)


def test_pods_behind_scheduling_gates_wait_for_whoever_set_them() -> None:
    held = pending(0)
    held["spec"] = {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}, {"name": "acme.io/budget"}]}
    found = explain(view(jobsets=[jobset()], pods=[held])).findings[0]
    assert found.cause is Cause.SUSPENDED
    assert "acme.io/budget, kueue.x-k8s.io/topology" in found.evidence[0].text


TOLD = "a volume of it is not there: PersistentVolumeClaim imagenet: it does not exist"


def test_what_the_manager_found_is_the_cause_where_nobody_else_could_look() -> None:
    waits = trainjob(condition("Waiting", "VolumePending", TOLD, since=33))
    (found,) = explain(view(waits, jobsets=[jobset()])).findings
    assert (found.cause, found.since) == (Cause.VOLUME_PENDING, moment(33))
    assert [each.text for each in found.evidence] == [TOLD]
    # What to do names the job.
    waits = trainjob(condition("Waiting", "InitContainerFailed", "rank 0: init container fetch still runs"))
    (found,) = explain(view(waits, jobsets=[jobset()])).findings
    assert found.what_next == ("read its log: trainmaster logs demo -n team",)
    # Who looked at pods knows better and what the manager does not know is not told.
    waits = trainjob(condition("Waiting", "VolumePending", TOLD))
    assert not list(told_to_wait(view(waits, pods=[pending(0)])))
    assert not list(told_to_wait(view(trainjob(condition("Waiting", "Unknown", "nothing tells why")))))
