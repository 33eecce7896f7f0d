"""Suspended, and by whom; what the condition Waiting tells where nobody could look at pods."""

from __future__ import annotations

from support.job_views import at, condition, jobset, moment, pending, pytorchjob, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.failures.told import told_to_wait
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.view import Unread, WhyUnread
from trainmaster.runtime.jsontree import JsonObject

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
    assert found.evidence[0].text == "spec.suspend is true, set by `trainmaster suspend`"
    assert found.evidence[0].at == moment(90)
    assert found.what_next == ("resume it: trainmaster resume demo -n team",)


def test_a_job_of_kubeflow_org_is_suspended_by_its_run_policy_and_a_jobset_by_others() -> None:
    # A job of kubeflow org is suspended by its run policy.
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
    # A job in a queue waits for kueue.
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
    # What the manager found is the cause where nobody else could look.
    waits = trainjob(condition("Waiting", "VolumePending", TOLD, since=33))
    (found,) = explain(view(waits, jobsets=[jobset()])).findings
    assert (found.cause, found.since) == (Cause.VOLUME_PENDING, moment(33))
    assert [each.text for each in found.evidence] == [TOLD]
    # What to do names the job.
    waits = trainjob(condition("Waiting", "InitContainerFailed", "rank 0: init container fetch still runs"))
    (found,) = told_to_wait(view(waits))
    assert found.what_next == ("read its log: trainmaster logs demo -n team",)
    # Who looked at pods knows better and what the manager does not know is not told.
    waits = trainjob(condition("Waiting", "VolumePending", TOLD))
    assert not list(told_to_wait(view(waits, pods=[pending(0)])))
    assert not list(told_to_wait(view(trainjob(condition("Waiting", "Unknown", "nothing tells why")))))
