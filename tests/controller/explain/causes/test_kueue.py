"""QuotaExceeded of queues of Kueue and Volcano with who holds the quota, and GangIncomplete with who misses."""

from typing import Any

import pytest
from support.failing_pods import container_status, pod, terminated
from support.job_views import at, condition, event, jobset, moment, pending, running, trainjob, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Certainty
from trainmaster.controller.explain.view import Unread, WhyUnread
from trainmaster.runtime.jsontree import JsonObject

SUSPENDED = condition("Suspended", since=2)
GPU = "nvidia.com/gpu"
TOLD = f"couldn't assign flavors to pod set node: insufficient unused quota for {GPU} in flavor a100, 4 more needed"


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


def cluster_queue(*, pending: int = 0, **amounts: tuple[str, str]) -> JsonObject:
    """The queue `gpus`: of each flavor how many GPUs there are, and how many of them are reserved."""
    flavors = [{"name": name, "resources": [{"name": GPU, "nominalQuota": has}]} for name, (has, _) in amounts.items()]
    reserved = [{"name": name, "resources": [{"name": GPU, "total": total}]} for name, (_, total) in amounts.items()]
    found = queue("ClusterQueue", "gpus", resourceGroups=[{"coveredResources": [GPU], "flavors": flavors}])
    found["status"] |= {"flavorsReservation": reserved, "pendingWorkloads": pending}
    return found


def holder(name: str, amount: str, *, flavor: str = "a100", of: str = "gpus", ended: bool = False) -> JsonObject:
    """Somebody else's workload that Kueue has admitted."""
    ends = [condition("Finished")] if ended else []
    found = workload(condition("QuotaReserved", since=1), *ends)
    owner = {"kind": "PyTorchJob", "name": name, "uid": f"uid-of-{name}"}
    found["metadata"] = {"name": f"pytorchjob-{name}", "namespace": "others", "ownerReferences": [owner]}
    assigned = {"name": "worker", "flavors": {GPU: flavor}, "resourceUsage": {GPU: amount, "cpu": "1"}}
    found["status"]["admission"] = {"clusterQueue": of, "podSetAssignments": [assigned]}
    return found


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


def test_admission_checks_and_deactivation_are_told_and_an_admitted_workload_is_no_reason() -> None:
    waiting = workload(condition("QuotaReserved", "QuotaReserved", "ok"), active=False)
    waiting["status"]["admissionChecks"] = [{"name": "provision", "state": "Retry", "message": "no capacity"}]
    found = explain(view(trainjob(SUSPENDED, suspend=True), jobsets=[], pods=[], workloads=[waiting])).findings[0]
    assert [each.text for each in found.evidence] == [
        "spec.active is false: it is not to be admitted until somebody changes that",
        "the admission check provision is Retry: no capacity",
    ]
    # An admitted workload is no reason.
    admitted = workload(condition("QuotaReserved"), condition("Admitted"))
    assert not explain(view(jobsets=[jobset()], pods=[], workloads=[admitted], now=10)).findings


def test_who_holds_the_quota_is_told_whoever_has_most_first() -> None:
    gpus = cluster_queue(a100=("8", "8"), t4=("4", "0"), pending=2)
    holders = [
        holder("small", "1"),
        holder("large", "6"),
        holder("other-flavor", "4", flavor="t4"),
        holder("other-queue", "4", of="cpus"),
        holder("done", "8", ended=True),
        holder("medium", "2"),
        holder("tiny", "500m"),
    ]
    waiting = workload(condition("QuotaReserved", "Pending", TOLD, since=3, status="False"))
    known: dict[str, Any] = {"workloads": [waiting], "queues": [queue("LocalQueue", "research"), gpus]}
    suspended = trainjob(SUSPENDED, suspend=True)
    found = explain(view(suspended, jobsets=[], pods=[], quota_holders=holders, **known)).findings[0]
    assert found.cause is Cause.QUOTA_EXCEEDED
    where = "of the ClusterQueue gpus, for PyTorchJob"
    assert [(each.object.name, each.text) for each in found.evidence[1:]] == [
        ("gpus", f"has given away 8 of 8 {GPU} in flavor a100; 2 workloads wait for it"),
        ("pytorchjob-large", f"holds 6 {GPU} {where} large in namespace others"),
        ("pytorchjob-medium", f"holds 2 {GPU} {where} medium in namespace others"),
        ("pytorchjob-small", f"holds 1 {GPU} {where} small in namespace others; 1 more hold some"),
    ]


def test_what_is_used_up_is_told_where_kueue_names_no_resource_and_quota_is_waited_for() -> None:
    waiting = workload(condition("QuotaReserved", "Pending", "Workload didn't fit", since=3, status="False"))
    queues = [queue("LocalQueue", "research"), cluster_queue(a100=("8", "8"), t4=("4", "1"))]
    found = explain(view(trainjob(SUSPENDED, suspend=True), jobsets=[], pods=[], workloads=[waiting], queues=queues))
    assert found.findings[0].evidence[-1].text == f"has given away 8 of 8 {GPU} in flavor a100"
    # A workload that waits for something else than quota says nothing of it.
    waiting = workload(condition("QuotaReserved"), active=False)
    queues = [queue("LocalQueue", "research"), cluster_queue(a100=("8", "8"))]
    found = explain(view(trainjob(SUSPENDED, suspend=True), jobsets=[], pods=[], workloads=[waiting], queues=queues))
    assert not any("given away" in each.text for each in found.findings[0].evidence)


VOLCANO = "scheduling.volcano.sh/v1beta1"
COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"


def group(api_version: str, phase: str, *conditions: JsonObject, members: int = 4, **spec: object) -> JsonObject:
    return {
        "apiVersion": api_version,
        "kind": "PodGroup",
        "metadata": {"name": "demo", "namespace": "team", "creationTimestamp": at(1)},
        "spec": {"minMember": members, **spec},
        "status": {"phase": phase, "conditions": list(conditions)},
    }


def scheduled(rank: int) -> JsonObject:
    return pod(rank, {"waiting": {"reason": "ContainerCreating"}}, phase="Pending") | {"spec": {"nodeName": "one"}}


@pytest.mark.parametrize(("api_version", "phase"), [(VOLCANO, "Inqueue"), (COSCHEDULING, "Pending")])
def test_members_that_do_not_exist_are_named_and_certain(api_version: str, phase: str) -> None:
    pods = [pending(rank, "pod group is not ready") for rank in range(2)]
    found = explain(view(jobsets=[jobset()], pods=pods, pod_groups=[group(api_version, phase)])).findings
    gang = next(each for each in found if each.cause is Cause.GANG_INCOMPLETE)
    assert gang.certainty is Certainty.CERTAIN
    assert [each.text for each in gang.evidence[:2]] == [
        "starts when 4 of its pods can; 0 have a node; without one: rank 0, rank 1",
        "has 2 pods, fewer than it needs; not created: 2 of node",
    ]
    assert any("kubectl describe jobs -l jobset.sigs.k8s.io/jobset-name=demo -n team" in line for line in gang.advice)


def test_a_gang_that_has_started_is_complete() -> None:
    pods = [running(rank) for rank in range(3)]
    for phase in ("Running", "Scheduled", "Finished", "Completed"):
        found = explain(view(jobsets=[jobset()], pods=pods, pod_groups=[group(COSCHEDULING, phase)])).findings
        assert all(each.cause is not Cause.GANG_INCOMPLETE for each in found)


def test_a_gang_of_which_pods_have_failed_had_started() -> None:
    """Volcano counts them no more, and puts the group back to Pending."""
    failed = [pod(rank, containers=[container_status(terminated(1))], phase="Failed") for rank in range(2)]
    pods = [each | {"spec": {"nodeName": "one"}} for each in (*failed, running(2), running(3))]
    found = explain(view(jobsets=[jobset()], pods=pods, pod_groups=[group(VOLCANO, "Pending")])).findings
    assert [each.cause for each in found] == [Cause.CONTAINER_FAILED]


def test_a_queue_of_volcano_that_is_full_is_the_cause() -> None:
    told = "4/0 tasks in gang unschedulable: pod group is not ready, 4 minAvailable; queue resource quota insufficient"
    waiting = group(VOLCANO, "Pending", condition("Unschedulable", "NotEnoughResources", told), queue="research")
    queue = {
        "kind": "Queue",
        "metadata": {"name": "research"},
        "spec": {"capability": {"nvidia.com/gpu": "8"}},
        "status": {"state": "Open", "allocated": {"nvidia.com/gpu": "6"}},
    }
    found = explain(view(jobsets=[jobset()], pods=[], pod_groups=[waiting], queues=[queue])).findings
    assert found[0].cause is Cause.QUOTA_EXCEEDED
    assert [each.text for each in found[0].evidence] == [told, "has nvidia.com/gpu: 8, of which 6 are in use"]
    # What volcano said in an event counts as well.
    events = [event("Unschedulable", "queue resource quota insufficient", kind="PodGroup", warning=False)]
    found = explain(view(jobsets=[jobset()], pods=[], pod_groups=[group(VOLCANO, "Pending")], events=events)).findings
    assert found[0].cause is Cause.QUOTA_EXCEEDED


def test_a_queue_of_volcano_that_is_closed_or_absent_is_the_cause() -> None:
    closed = {"kind": "Queue", "metadata": {"name": "research"}, "status": {"state": "Closed"}}
    waiting = group(VOLCANO, "Pending", queue="research")
    found = explain(view(jobsets=[jobset()], pods=[], pod_groups=[waiting], queues=[closed])).findings[0]
    assert (found.cause, found.evidence[0].text) == (Cause.QUOTA_EXCEEDED, "its queue research is Closed")
    found = explain(view(jobsets=[jobset()], pods=[], pod_groups=[waiting], queues=[])).findings[0]
    assert (found.cause, found.evidence[0].text) == (Cause.QUOTA_EXCEEDED, "its queue research does not exist")
    assert found.what_next[0].endswith("those that there are: kubectl get queues.scheduling.volcano.sh")
    unread = [Unread("queues.scheduling.volcano.sh", WhyUnread.FORBIDDEN, "no right")]
    of_kueue = [{"kind": "LocalQueue", "metadata": {"name": "research"}}]
    others = explain(view(jobsets=[jobset()], pods=[], pod_groups=[waiting], queues=of_kueue, unread=unread)).findings
    assert all(each.cause is not Cause.QUOTA_EXCEEDED for each in others)


def test_pods_that_were_not_read_are_not_said_to_be_missing() -> None:
    pods = [scheduled(0), pending(1)]
    known: dict[str, Any] = {"jobsets": [jobset(nodes=9000)], "pod_groups": [group(VOLCANO, "Inqueue", members=9000)]}
    found = explain(view(pods=pods, has_more_pods=True, **known)).findings[0]
    assert (found.cause, found.certainty) == (Cause.GANG_INCOMPLETE, Certainty.LIKELY)
    assert not any("fewer than it needs" in each.text for each in found.evidence)
    assert all(
        each.cause is not Cause.GANG_INCOMPLETE
        for each in explain(view(pods=pods[:1], has_more_pods=True, **known)).findings
    )
