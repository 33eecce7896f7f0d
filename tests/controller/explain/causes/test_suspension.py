"""Suspended, by whom; and QuotaExceeded of queues of Kueue."""

from __future__ import annotations

from support.job_views import at, condition, jobset, moment, pending, pytorchjob, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.view import Unread, WhyUnread
from trainmaster.runtime.jsontree import JsonObject

SUSPENDED = condition("Suspended", since=2)


def managed(manager: str, fields: JsonObject, *, time: float = 1, **more: str) -> JsonObject:
    return {"manager": manager, "operation": "Update", "time": at(time), "fieldsV1": fields, **more}


def workload(*conditions: JsonObject, **spec: object) -> JsonObject:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "trainjob-demo-1a2b3", "namespace": "team"},
        "spec": {"queueName": "research", **spec},
        "status": {"conditions": list(conditions)},
    }


def queue(kind: str, name: str, *conditions: JsonObject, **spec: object) -> JsonObject:
    metadata = {"name": name, **({"namespace": "team"} if kind == "LocalQueue" else {})}
    return {"kind": kind, "metadata": metadata, "spec": spec, "status": {"conditions": list(conditions)}}


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


def test_a_job_of_kubeflow_org_is_suspended_by_its_run_policy() -> None:
    job = pytorchjob(SUSPENDED, suspend=True)
    job["metadata"]["managedFields"] = [managed("argo", {"f:spec": {"f:runPolicy": {"f:suspend": {}}}})]
    (found,) = explain(view(job, pods=[])).findings
    assert found.evidence[0].text == "spec.runPolicy.suspend is true, set by argo"
    assert found.what_next == ("resume it: trainmaster resume pytorchjob/demo -n team",)


def test_a_jobset_that_somebody_else_suspended_is_told_with_who_it_was() -> None:
    suspended = jobset(suspend=True)
    suspended["metadata"]["managedFields"] = [managed("ops-bot", {"f:spec": {"f:suspend": {}}})]
    (found,) = explain(view(trainjob(), jobsets=[suspended], pods=[])).findings
    assert str(found.evidence[0].object) == "JobSet demo"
    assert found.evidence[0].text == "spec.suspend is true, set by ops-bot, and that of the job is not"


def test_a_job_in_a_queue_waits_for_kueue() -> None:
    job = trainjob(SUSPENDED, suspend=True)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    (found,) = explain(view(job, jobsets=[], pods=[])).findings
    assert found.cause is Cause.SUSPENDED
    assert "waits in the queue research of Kueue" in found.evidence[0].text
    assert not any("trainmaster resume" in line for line in found.what_next)


def test_the_label_of_a_queue_means_nothing_where_there_is_no_kueue() -> None:
    job = trainjob(SUSPENDED, suspend=True)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    unread = [Unread("workloads.kueue.x-k8s.io", WhyUnread.NOT_SERVED, "not served")]
    (found,) = explain(view(job, jobsets=[], pods=[], unread=unread)).findings
    assert "has no effect: Kueue is not installed here" in found.evidence[0].text
    assert found.what_next == ("resume it: trainmaster resume demo -n team",)


def test_what_kueue_says_of_the_quota_comes_before_the_suspension() -> None:
    job = trainjob(SUSPENDED, suspend=True)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    told = "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor a100"
    waiting = workload(condition("QuotaReserved", "Pending", told, since=3, status="False"))
    found = explain(view(job, jobsets=[], pods=[], workloads=[waiting])).findings
    assert [each.cause for each in found] == [Cause.QUOTA_EXCEEDED, Cause.SUSPENDED]
    assert found[0].evidence[0].text == f"Pending: {told}"
    assert found[0].since == moment(3)
    assert "kubectl describe localqueue research -n team" in found[0].what_next[1]


def test_queues_that_do_not_exist_or_are_stopped_are_told() -> None:
    job = trainjob(SUSPENDED, suspend=True)
    waiting = workload(condition("QuotaReserved", "Inadmissible", "LocalQueue research doesn't exist", status="False"))
    found = explain(view(job, jobsets=[], pods=[], workloads=[waiting], queues=[])).findings[0]
    assert [str(each.object) for each in found.evidence] == ["Workload trainjob-demo-1a2b3", "LocalQueue research"]
    stopped = [
        queue("LocalQueue", "research", clusterQueue="gpus"),
        queue("ClusterQueue", "gpus", stopPolicy="HoldAndDrain"),
    ]
    found = explain(view(job, jobsets=[], pods=[], workloads=[workload()], queues=stopped)).findings[0]
    assert found.evidence[0].text == "is stopped: spec.stopPolicy is HoldAndDrain"
    unready = [queue("ClusterQueue", "gpus", condition("Active", "FlavorNotFound", "no a100", status="False"))]
    found = explain(view(job, jobsets=[], pods=[], workloads=[workload()], queues=unready)).findings[0]
    assert found.evidence[-1].text == "is not active: FlavorNotFound: no a100"


def test_admission_checks_and_deactivation_are_told() -> None:
    waiting = workload(condition("QuotaReserved", "QuotaReserved", "ok"), active=False)
    waiting["status"]["admissionChecks"] = [{"name": "provision", "state": "Retry", "message": "no capacity"}]
    found = explain(view(trainjob(SUSPENDED, suspend=True), jobsets=[], pods=[], workloads=[waiting])).findings[0]
    assert [each.text for each in found.evidence] == [
        "spec.active is false: it is not to be admitted until somebody changes that",
        "the admission check provision is Retry: no capacity",
    ]


def test_an_admitted_workload_is_no_reason() -> None:
    admitted = workload(condition("QuotaReserved"), condition("Admitted"))
    assert not explain(view(jobsets=[jobset()], pods=[], workloads=[admitted], now=10)).findings


def test_pods_behind_scheduling_gates_wait_for_whoever_set_them() -> None:
    held = pending(0)
    held["spec"] = {"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}, {"name": "acme.io/budget"}]}
    found = explain(view(jobsets=[jobset()], pods=[held])).findings[0]
    assert found.cause is Cause.SUSPENDED
    assert "acme.io/budget, kueue.x-k8s.io/topology" in found.evidence[0].text
