"""Gangs that Kubernetes itself schedules, as recorded from kube-scheduler 1.36.2.

The names are those of the recording. Not here:
- S15 to S18, S28, S29, S31 to S33: Workloads that the Job controller makes (WorkloadWithJob), which are not offered.
- S8: what S1 has without its pauses; the embedded scheduler knows no back-off.
- J1 to J15 and J17 to J23 are about JobSets: see their tests.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.devcluster.stepper import Stepper
from support.workloads import add_node, bound, scheduling

from trainmaster.devcluster.apiserver.registry import workload
from trainmaster.devcluster.apiserver.registry.generic import DeleteOptions
from trainmaster.devcluster.apiserver.resources import EVENTS, NODES, PODS, WORKLOAD_POD_GROUPS
from trainmaster.devcluster.controllers.objects import condition_of
from trainmaster.devcluster.controllers.protection import pod_group_protection
from trainmaster.devcluster.scheduler.gangs.pod_group import WAITS
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.runtime.jsontree import JsonObject

FULL = "0/3 nodes are available: 3 Insufficient cpu."


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    """A cluster that serves PodGroups."""
    for kind in workload.kinds():
        cluster.api.registry.add(kind)
    cluster.start(Scheduler(cluster.api), pod_group_protection(cluster.api))
    return cluster


async def nodes(cluster: Stepper, *names: int, labels: JsonObject | None = None) -> None:
    for name in names:
        await add_node(cluster, f"n{name}", {"cpu": "1", "pods": "9"}, labels=labels)
    await cluster.settle()


async def group(cluster: Stepper, name: str = "g", *, gang: int = 0, **spec: Any) -> None:
    policy: JsonObject = {"gang": {"minCount": gang}} if gang else {"basic": {}}
    body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy, **spec}}
    await cluster.api.create(WORKLOAD_POD_GROUPS, body, namespace="default")
    await cluster.settle()


async def pods(cluster: Stepper, *names: str, of: str | None = "g", **spec: Any) -> None:
    container = {"name": "main", "image": "img", "resources": {"requests": {"cpu": "1"}}}
    named = {"schedulingGroup": {"podGroupName": of}} if of else {}
    for name in names:
        body = {"metadata": {"name": name}, "spec": {"containers": [container], **named, **spec}}
        await cluster.api.create(PODS, body, namespace="default")
        await cluster.settle()


async def delete(cluster: Stepper, *names: str) -> None:
    for name in names:
        await cluster.api.delete(PODS, "default", name, options=DeleteOptions(grace_seconds=0))
        await cluster.settle()


async def end(cluster: Stepper, *names: str) -> None:
    for name in names:
        await cluster.set_pod(cluster.api.get(PODS, "default", name), "Succeeded")


def said(cluster: Stepper, name: str = "g") -> str | None:
    """What the PodGroup says, in a word."""
    found = cluster.api.get(WORKLOAD_POD_GROUPS, "default", name)["status"].get("conditions")
    return None if not found else f"{found[0]['status']} {found[0]['reason']}: {found[0]['message']}"


def waiting(cluster: Stepper) -> dict[str, str]:
    """What each pod without a node says."""
    names = [each["metadata"]["name"] for each in cluster.objects(PODS) if not each["spec"].get("nodeName")]
    return {name: scheduling(cluster, name).get("message", "").partition(" The pod asks")[0] for name in names}


def evicted(cluster: Stepper) -> list[JsonObject]:
    """The pods that have to make room."""
    return [each for each in cluster.objects(PODS) if "deletionTimestamp" in each["metadata"]]


SCHEDULED = "True Scheduled: "
PREEMPTS = "False Unschedulable: 0/1 placements are available, first placement status: pod group is unschedulable"
UNSCHEDULABLE = f"{PREEMPTS}, No preemption victims found for incoming preemptor"
NO_PREEMPTION = "workload aware preemption is not supported for pod groups with scheduling constraints"


async def test_s1_a_gang_of_4_waits_whole_for_the_4th_node(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1, 2)
    await group(cluster, gang=4)
    await pods(cluster, "p0", "p1", "p2", "p3")
    assert waiting(cluster) == {"p0": WAITS, "p1": WAITS, "p2": WAITS, "p3": FULL}
    assert set(cluster.reasons("p0")) == {"FailedScheduling"}
    assert said(cluster) == UNSCHEDULABLE
    await nodes(cluster, 3)
    assert bound(cluster) == ["p0", "p1", "p2", "p3"]
    assert said(cluster) == SCHEDULED
    before = cluster.api.get(WORKLOAD_POD_GROUPS, "default", "g")
    await pods(cluster, "p4")
    assert waiting(cluster) == {"p4": "0/4 nodes are available: 4 Insufficient cpu."}
    await delete(cluster, "p0")
    assert bound(cluster) == ["p1", "p2", "p3", "p4"]
    assert cluster.api.get(WORKLOAD_POD_GROUPS, "default", "g") == before


@pytest.mark.parametrize("missing", ["pods", "group"])
async def test_s2_and_s4_nothing_is_said_while_pods_or_the_group_are_missing(cluster: Stepper, missing: str) -> None:
    await nodes(cluster, 0, 1)
    if missing == "pods":
        await group(cluster, gang=2)
    await pods(cluster, "p0", *(["p1"] if missing == "group" else ()))
    assert set(waiting(cluster).values()) == {""}
    assert cluster.reasons("p0") == []
    if missing == "pods":
        assert said(cluster) is None
        await pods(cluster, "p1")
    else:
        await group(cluster, gang=2)
    assert bound(cluster) == ["p0", "p1"]


async def test_s3_pods_of_a_basic_group_come_one_by_one(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1, 2)
    await group(cluster)
    await pods(cluster, "p0")
    assert (bound(cluster), said(cluster)) == (["p0"], SCHEDULED)
    await pods(cluster, "p1", "p2", "p3")
    assert (waiting(cluster), said(cluster)) == ({"p3": FULL}, SCHEDULED)


async def test_s5_and_s15_a_deleted_group_still_schedules_and_goes_with_its_last_pod(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1)
    await group(cluster, gang=3)
    await pods(cluster, "p0", "p1", "p2")
    await cluster.delete(WORKLOAD_POD_GROUPS, "g")
    await nodes(cluster, 2)
    assert (bound(cluster), said(cluster)) == (["p0", "p1", "p2"], SCHEDULED)
    await delete(cluster, "p0")
    await end(cluster, "p1")
    assert cluster.exists(WORKLOAD_POD_GROUPS, "g")
    await end(cluster, "p2")
    assert not cluster.exists(WORKLOAD_POD_GROUPS, "g")


async def test_s6_a_group_that_is_made_again_has_its_own_count(cluster: Stepper) -> None:
    await nodes(cluster, 0)
    await group(cluster, gang=4)
    await pods(cluster, "p0", "p1")
    await cluster.delete(WORKLOAD_POD_GROUPS, "g")
    found = cluster.api.get(WORKLOAD_POD_GROUPS, "default", "g")
    await cluster.api.update(WORKLOAD_POD_GROUPS, {**found, "metadata": {**found["metadata"], "finalizers": []}})
    await group(cluster, gang=1)
    assert (bound(cluster), said(cluster)) == (["p0"], SCHEDULED)


async def test_s7_and_s27_of_two_gangs_one_waits_whole_until_there_is_room(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1, 2, 3)
    await group(cluster, "a", gang=3)
    await group(cluster, "b", gang=3)
    for number in range(3):
        await pods(cluster, f"a{number}", of="a")
        await pods(cluster, f"b{number}", of="b")
    assert (bound(cluster), said(cluster, "a"), said(cluster, "b")) == (["a0", "a1", "a2"], SCHEDULED, UNSCHEDULABLE)
    await end(cluster, "a0")
    assert bound(cluster) == ["a0", "a1", "a2"]
    await end(cluster, "a1")
    assert (bound(cluster)[3:], said(cluster, "b")) == (["b0", "b1", "b2"], SCHEDULED)


@pytest.mark.parametrize(
    ("gone", "starts"), [(["p2"], True), (["p1", "p2"], False)], ids=["two are left of three", "one is left"]
)
@pytest.mark.parametrize("leave", [delete, end], ids=["S13", "S14"])
async def test_replacements_start_if_they_make_the_gang_whole(
    cluster: Stepper, gone: list[str], starts: bool, leave: Any
) -> None:
    """Pods that have ended do not count."""
    await nodes(cluster, 0, 1, 2)
    await group(cluster, gang=3)
    await pods(cluster, "p0", "p1", "p2")
    await leave(cluster, *gone)
    await pods(cluster, "q0")
    assert ("q0" in bound(cluster)) == starts
    assert said(cluster) == SCHEDULED
    assert waiting(cluster) == ({} if starts else {"q0": ""})


async def test_s20_pods_of_other_schedulers_do_not_count_and_gated_ones_do(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1)
    await group(cluster, gang=2)
    await pods(cluster, "a0")
    await pods(cluster, "a1", schedulerName="of-others")
    assert waiting(cluster) == {"a0": "", "a1": ""}
    await group(cluster, "m", gang=2)
    await pods(cluster, "m0", of="m")
    await pods(cluster, "m1", of="m", schedulingGates=[{"name": "acme.io/gate"}])
    assert (waiting(cluster)["m0"], said(cluster, "m")) == (WAITS, UNSCHEDULABLE)
    found = cluster.api.get(PODS, "default", "m1")
    await cluster.api.update(PODS, {**found, "spec": {**found["spec"], "schedulingGates": []}})
    await cluster.settle()
    assert (bound(cluster), said(cluster, "m")) == (["m0", "m1"], SCHEDULED)


async def test_s22_more_pods_than_the_gang_needs_follow_one_by_one(cluster: Stepper) -> None:
    await group(cluster, gang=3)
    await pods(cluster, "p0", "p1", "p2", "p3", "p4")
    assert set(waiting(cluster).values()) == {"no nodes available to schedule pods"}
    await nodes(cluster, 0, 1)
    assert bound(cluster) == []
    await nodes(cluster, 2)
    assert len(bound(cluster)) == 3
    await nodes(cluster, 3)
    assert len(bound(cluster)) == 4


async def test_s23_a_lost_member_is_replaced_when_there_is_room(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1, 2)
    await group(cluster, gang=3)
    await pods(cluster, "p0", "p1", "p2")
    await end(cluster, "p2")
    await pods(cluster, "other", of="of-others")
    await group(cluster, "of-others")
    await pods(cluster, "q0")
    assert (waiting(cluster), said(cluster)) == ({"q0": FULL}, SCHEDULED)
    await end(cluster, "other")
    assert bound(cluster) == ["other", "p0", "p1", "p2", "q0"]


async def test_s24_one_member_that_fits_nowhere_holds_the_others(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1, 2)
    await group(cluster, gang=2)
    await pods(cluster, "p0")
    await pods(cluster, "p1", nodeSelector={"disk": "fast"})
    nowhere = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    assert waiting(cluster) == {"p0": WAITS, "p1": nowhere}
    node = cluster.api.get(NODES, None, "n2")
    await cluster.api.update(NODES, {**node, "metadata": {**node["metadata"], "labels": {"disk": "fast"}}})
    await cluster.settle()
    assert bound(cluster) == ["p0", "p1"]


async def test_j16_members_that_terminate_count_so_that_the_next_attempt_may_start_in_part(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1, 2)
    await group(cluster, gang=3)
    await pods(cluster, "p0", "p1", "p2")
    for name in ("p0", "p1"):
        await cluster.api.delete(PODS, "default", name)
    await delete(cluster, "p2")
    await pods(cluster, "q0")
    assert bound(cluster) == ["p0", "p1", "q0"]


@pytest.mark.parametrize(("mode", "gone"), [("Pod", 2), ("PodGroup", 3)], ids=["S9", "S10"])
async def test_a_gang_takes_the_place_of_a_less_important_one(cluster: Stepper, mode: str, gone: int) -> None:
    await nodes(cluster, 0, 1, 2)
    await group(cluster, "lo", gang=3, priority=10, disruptionMode=mode)
    await pods(cluster, "lo0", "lo1", "lo2", of="lo")
    await group(cluster, "hi", gang=2, priority=1000)
    await pods(cluster, "hi0", of="hi")
    assert evicted(cluster) == []
    await pods(cluster, "hi1", of="hi")
    victims = evicted(cluster)
    assert len(victims) == gone
    assert (said(cluster, "hi"), waiting(cluster)) == (PREEMPTS, {"hi0": FULL, "hi1": FULL})
    uid = cluster.api.get(WORKLOAD_POD_GROUPS, "default", "hi")["metadata"]["uid"]
    await pods(cluster, "x0", "x1", of=None)
    for victim in victims:
        told = condition_of(victim["status"]["conditions"], "DisruptionTarget") or {}
        assert told["message"] == "default-scheduler: preempting to accommodate a higher priority podgroup"
        await cluster.end_pod(victim)
    events = [each["message"] for each in cluster.objects(EVENTS) if each["reason"] == "Preempted"]
    assert events == [f"Preempted by podgroup {uid} on node cluster"] * gone
    assert bound(cluster)[:2] == ["hi0", "hi1"], "its room is kept for it"
    assert (said(cluster, "hi"), said(cluster, "lo")) == (SCHEDULED, SCHEDULED)


async def test_s11_a_plain_pod_takes_the_place_of_one_member_whatever_the_mode(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1)
    await group(cluster, gang=2, priority=10, disruptionMode="PodGroup")
    await pods(cluster, "p0", "p1", priority=10)
    await pods(cluster, "solo", of=None, priority=1000)
    assert len(evicted(cluster)) == 1


async def test_s12_the_more_important_of_two_waiting_gangs_comes_first(cluster: Stepper) -> None:
    for name, priority in (("lo", 10), ("hi", 1000)):
        await group(cluster, name, gang=2, priority=priority)
        await pods(cluster, f"{name}0", f"{name}1", of=name, priority=1000 - priority)
    for number in (0, 1):
        await add_node(cluster, f"n{number}", {"cpu": "1", "pods": "9"})
    await cluster.settle()
    assert (bound(cluster), said(cluster, "lo")) == (["hi0", "hi1"], UNSCHEDULABLE)


@pytest.mark.parametrize(
    ("of_group", "of_pods", "policy", "gone"),
    [
        pytest.param(1000, 0, "PreemptLowerPriority", 2, id="S25"),
        pytest.param(0, 1000, "PreemptLowerPriority", 0, id="S26"),
        pytest.param(1000, 1000, "Never", 0, id="never"),
    ],
)
async def test_the_priority_of_the_group_counts_and_not_that_of_its_pods(
    cluster: Stepper, of_group: int, of_pods: int, policy: str, gone: int
) -> None:
    await nodes(cluster, 0, 1)
    await pods(cluster, "lo0", "lo1", of=None, priority=10)
    await group(cluster, gang=2, priority=of_group)
    await pods(cluster, "p0", "p1", priority=of_pods, preemptionPolicy=policy)
    assert len(evicted(cluster)) == gone
    assert said(cluster) == (PREEMPTS if gone else UNSCHEDULABLE)


async def test_s19_and_s30_a_gang_with_a_topology_is_placed_on_one_value_of_its_label(cluster: Stepper) -> None:
    for rack, names in enumerate([(0, 1), (2, 3), (4, 5, 6)]):
        await nodes(cluster, *names, labels={"rack": str(rack)})
    near: JsonObject = {"schedulingConstraints": {"topology": [{"key": "rack"}]}}
    await group(cluster, gang=3, **near)
    near["priority"] = 1000
    await pods(cluster, "p0", "p1", "p2")
    placed = [each["spec"]["nodeName"] for each in cluster.objects(PODS)]
    assert (sorted(placed), said(cluster)) == (["n4", "n5", "n6"], SCHEDULED)
    await group(cluster, "h", gang=3, **near)
    await pods(cluster, "h0", "h1", "h2", of="h")
    of_rack_0 = "0/2 nodes are available: 2 Insufficient cpu."
    assert waiting(cluster) == {"h0": WAITS, "h1": WAITS, "h2": of_rack_0}
    status = "False Unschedulable: 0/3 placements are available, first placement status: pod group is unschedulable"
    assert said(cluster, "h") == f"{status}, {NO_PREEMPTION}"
    await delete(cluster, "p0")
    await pods(cluster, "q0")
    assert cluster.api.get(PODS, "default", "q0")["spec"]["nodeName"] in placed, "it follows the others"
    near["schedulingConstraints"]["topology"][0]["key"] = "row"
    await group(cluster, "k", gang=1, **near)
    await pods(cluster, "k0", of="k")
    nowhere = f"no feasible placements found, {NO_PREEMPTION}"
    assert (waiting(cluster)["k0"], said(cluster, "k")) == (nowhere, f"False Unschedulable: {nowhere}")
    assert evicted(cluster) == []


async def test_s21_a_gang_with_a_claim_waits_for_devices(cluster: Stepper) -> None:
    await nodes(cluster, 0, 1)
    claims = [{"name": "gpu", "resourceClaimTemplateName": "tmpl"}]
    await group(cluster, gang=2, resourceClaims=claims)
    await pods(cluster, "p0", "p1", resourceClaims=claims)
    assert all("the embedded cluster has no devices" in each for each in waiting(cluster).values())
    assert (bound(cluster), said(cluster)) == ([], UNSCHEDULABLE)


async def test_pods_of_a_group_are_plain_ones_when_groups_are_no_longer_served(cluster: Stepper) -> None:
    await nodes(cluster, 0)
    await group(cluster, gang=2)
    await pods(cluster, "p0", "p1")
    cluster.stop()
    without = Stepper(store=cluster.store)
    scheduler = Scheduler(without.api)
    without.start(scheduler)
    await without.settle()
    assert scheduler.loops[0].next_due is None, "nothing is tried again and again"
    assert (bound(without), waiting(without)["p1"]) == (["p0"], "0/1 nodes are available: 1 Insufficient cpu.")


async def test_a_plain_pod_goes_on_beside_a_gang_that_waits(cluster: Stepper) -> None:
    await nodes(cluster, 0)
    await group(cluster, gang=2)
    await pods(cluster, "p0", "p1")
    await pods(cluster, "x", of=None)
    assert bound(cluster) == ["x"]
