"""GangIncomplete of gangs that Kubernetes itself schedules: PodGroups of scheduling.k8s.io."""

from typing import Any

import pytest
from support.job_views import at, condition, jobset, pending, running, trainjob, view

from trainmaster.controller.diagnosis.waiting import waiting_condition
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.explanation import explain
from trainmaster.controller.explain.findings import Certainty, Finding
from trainmaster.runtime.jsontree import JsonObject

WAIT = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, one or more plugins asked to "
    "wait and no plugin rejected pod"
)
FULL = "0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate, preemption: not eligible"
REFUSED = condition("PodGroupScheduled", "Unschedulable", "0/1 placements are available", status="False")


def member(found: JsonObject, group: str = "demo-trainjob-1") -> JsonObject:
    return {**found, "spec": {**(found.get("spec") or {}), "schedulingGroup": {"podGroupName": group}}}


def group(*conditions: JsonObject, **policy: Any) -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "demo-trainjob-1", "namespace": "team", "creationTimestamp": at(1)},
        "spec": {"schedulingPolicy": policy or {"gang": {"minCount": 4}}},
        "status": {"conditions": list(conditions)},
    }


def incomplete(pods: list[JsonObject], *groups: JsonObject) -> list[Finding]:
    found = explain(view(jobsets=[jobset()], pods=pods, pod_groups=groups, nodes=[], events=[])).findings
    return [each for each in found if each.cause is Cause.GANG_INCOMPLETE]


def test_it_says_how_many_fit_and_why_the_others_do_not() -> None:
    pods = [member(pending(rank, FULL if rank == 2 else WAIT)) for rank in range(4)]
    (finding,) = incomplete(pods, group(REFUSED))
    assert [each.text for each in finding.evidence] == [
        "starts when 4 of its pods can; 0 have a node; 3 of 4 fit; without room: rank 2",
        "0/1 placements are available",
        FULL,
    ]
    assert "podgroups.scheduling.k8s.io demo-trainjob-1" in finding.what_next[-1]


def test_fewer_pods_than_it_needs_and_a_group_that_is_missing_wait_without_a_word_of_the_scheduler() -> None:
    pods = [member(pending(rank)) for rank in range(3)]
    (few,) = incomplete(pods, group())
    assert few.certainty is Certainty.CERTAIN
    assert "has 3 pods, fewer than it needs" in few.evidence[1].text
    (missing,) = incomplete(pods)
    assert [str(each.object) for each in missing.evidence] == ["PodGroup demo-trainjob-1"]
    assert missing.evidence[0].text == "does not exist, and pods wait for it: rank 0, rank 1, rank 2"


def test_pods_that_lost_the_name_of_their_group_are_told() -> None:
    (finding,) = incomplete([pending(rank) for rank in range(4)], group())
    assert any("GenericWorkload" in each.text for each in finding.evidence)
    (finding,) = incomplete([member(pending(rank)) for rank in range(3)], group())
    assert not any("GenericWorkload" in each.text for each in finding.evidence)


@pytest.mark.parametrize(
    ("pods", "groups"),
    [
        ([member(running(rank)) for rank in range(4)], [group(REFUSED)]),
        ([member(pending(rank)) for rank in range(3)], [group(basic={})]),
        ([member(pending(rank), "other") for rank in range(3)], []),
    ],
    ids=["all have a node", "it is no gang", "nobody looked"],
)
def test_what_does_not_wait_for_a_gang(pods: list[JsonObject], groups: list[JsonObject]) -> None:
    known: dict[str, Any] = {"pod_groups": groups} if groups else {}
    found = explain(view(jobsets=[jobset()], pods=pods, **known)).findings
    assert Cause.GANG_INCOMPLETE not in {each.cause for each in found}


def test_the_condition_of_a_trainjob_says_that_its_pods_wait_for_their_gang() -> None:
    shown = view(jobsets=[jobset()], pods=[member(pending(rank)) for rank in range(3)])
    told = waiting_condition(
        trainjob(), jobset(), shown.pods or (), [], stored=None, failure_is_told=False, now=shown.now
    )
    assert told is not None
    assert "pods of its gang have no node" in told["message"]
