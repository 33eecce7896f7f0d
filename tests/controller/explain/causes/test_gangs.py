"""GangIncomplete with who misses, and QuotaExceeded of queues of Volcano."""

from __future__ import annotations

from typing import Any

import pytest
from support.failing_pods import container_status, pod, terminated
from support.job_views import at, condition, event, jobset, pending, running, view

from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Certainty
from trainmaster.controller.explain.view import Unread, WhyUnread
from trainmaster.runtime.jsontree import JsonObject

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
    # A queue of volcano that is full is the cause.
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
