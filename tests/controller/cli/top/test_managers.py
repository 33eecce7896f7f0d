"""The replicas of the manager, and the nodes with what is asked of them."""

from typing import Any

from support.top import NOW, ago, node, node_object, pod_on

from trainmaster.controller.cli.top.managers import managers_of
from trainmaster.controller.cli.top.node_usage import node_usages, total
from trainmaster.runtime.jsontree import JsonObject


def replica(name: str, *, ready: bool = True, **status: Any) -> JsonObject:
    condition = {"type": "Ready", "status": "True" if ready else "False", "message": "containers with unready status"}
    told = {"phase": "Running", "conditions": [condition], **status}
    return {"metadata": {"name": name, "namespace": "kubeflow-system"}, "status": told}


def lease(holder: str, *, renewed: float = 2, namespace: str = "kubeflow-system") -> JsonObject:
    spec = {"holderIdentity": holder, "renewTime": ago(renewed), "leaseDurationSeconds": 15}
    return {"metadata": {"name": "trainer.kubeflow.org", "namespace": namespace}, "spec": spec}


def test_the_pod_that_holds_the_lease_leads_and_comes_first_and_an_embedded_one_has_no_pod() -> None:
    found = managers_of([replica("manager-a"), replica("manager-b")], [lease("manager-b_0b5f")], now=NOW)
    assert [(each.name, each.leads, each.is_ready) for each in found.replicas] == [
        ("manager-b", True, True),
        ("manager-a", False, True),
    ]
    assert found.note == ""
    # The manager of an embedded cluster is one without a pod.
    ready = {"phase": "ready", "message": "", "ends": 0}
    (shown,) = managers_of([], [], now=NOW, embedded=ready).replicas
    assert (shown.name, shown.is_ready, shown.leads) == ("embedded", True, True)
    crashing = {"phase": "crashing", "message": "no such file", "ends": 3}
    (shown,) = managers_of([], [], now=NOW, embedded=crashing).replicas
    assert (shown.is_ready, shown.problem, shown.restarts) == (False, "crashing: no such file", 3)


def test_who_leads_is_told_by_the_lease() -> None:
    # A name that begins as that of another pod is not it.
    found = managers_of([replica("manager"), replica("manager-2")], [lease("manager-2_0b5f")], now=NOW)
    assert [each.name for each in found.replicas if each.leads] == ["manager-2"]
    # A lease that nobody renews is nobodys.
    found = managers_of([replica("manager-a")], [lease("manager-a_0b5f", renewed=60)], now=NOW)
    assert not found.replicas[0].leads
    assert found.note.startswith("none leads")
    # Who may not read leases does not say that none leads.
    assert managers_of([replica("manager-a")], None, now=NOW).note == ""
    # A manager that is no pod here is told of.
    elsewhere = managers_of([], [lease("laptop_1", namespace="kubeflow")], now=NOW)
    assert elsewhere.note == "no pod of a manager is known; laptop_1 in kubeflow leads"
    both = managers_of([replica("manager-a")], [lease("laptop_1")], now=NOW)
    assert both.note == "laptop_1 in kubeflow-system leads"
    assert managers_of([], [], now=NOW).note.startswith("none is installed")


def test_why_a_replica_is_not_ready() -> None:
    container = {"name": "manager", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    crashing = replica("a", ready=False, containerStatuses=[container])
    found = managers_of([crashing, replica("b", ready=False)], [], now=NOW)
    told = [(each.problem, each.restarts) for each in found.replicas]
    assert told == [("CrashLoopBackOff", 7), ("containers with unready status", 0)]
    # A pod that ends is no replica any more.
    ending = replica("a")
    ending["metadata"]["deletionTimestamp"] = ago(1)
    assert managers_of([ending], [], now=NOW).replicas == []


def test_requests_are_those_of_the_pods_that_are_on_a_node() -> None:
    pods = [pod_on("a", "one", cpu="500m", memory="1Gi"), pod_on("b", "three", cpu="4"), pod_on("a", "odd", cpu="many")]
    sidecar = {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}
    pods[0]["spec"] |= {"initContainers": [sidecar], "overhead": {"cpu": "500m"}}
    used, unused = node_usages([node_object("a"), node_object("c")], pods)
    assert {name: str(amount) for name, amount in used.requested.items()} == {"cpu": "3", "memory": "1Gi"}
    assert unused.requested == {}
    # Devices are accelerators and what every node has is not.
    obj = node_object("a", cpu="8", memory="32Gi", pods="110", nvidia_com__gpu="4", google_com__tpu="0")
    obj["status"]["allocatable"] |= {"hugepages-2Mi": "1Gi", "ephemeral-storage": "100Gi", "odd": "?"}
    assert node_usages([obj], [])[0].accelerators == ["nvidia.com/gpu"]


def test_the_status_of_a_node_says_whether_it_takes_pods() -> None:
    pressed = node_object("a")
    pressed["status"]["conditions"].append({"type": "DiskPressure", "status": "True"})
    for obj, status in (
        (node_object("a"), "Ready"),
        (node_object("a", ready="False"), "NotReady"),
        (node_object("a", ready="Unknown"), "Unknown"),
        (node_object("a", unschedulable=True), "SchedulingDisabled"),
        ({"metadata": {"name": "a"}}, "Unknown"),
        (pressed, "DiskPressure"),
    ):
        [usage] = node_usages([obj], [])
        assert (usage.status, usage.is_ready) == (status, status == "Ready")


def test_the_scarcest_resource_says_how_full_a_node_is_if_it_takes_pods() -> None:
    usage = node(
        "a", has={"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}, asked={"cpu": "2", "nvidia.com/gpu": "3"}
    )
    assert usage.fullness == 0.75
    assert usage.share("memory") == 0
    assert node("a", has={}).fullness == 0
    # Nodes that take no pods do not count as room.
    together = total(
        [node("a", asked={"cpu": "4"}), node("b", asked={"cpu": "1"}), node("c", status="NotReady", asked={"cpu": "8"})]
    )
    assert together.status == "2/3"
    assert (str(together.allocatable["cpu"]), str(together.requested["cpu"])) == ("16", "5")
