"""What nodes have, and what is asked of them."""

from __future__ import annotations

from support.top import node, node_object, pod_on

from trainmaster.controller.cli.top.node_usage import PodRequests, node_usage, total, trimmed_pod


def test_requests_are_those_of_the_pods_that_are_on_a_node_now() -> None:
    requests = PodRequests()
    requests.put(pod_on("a", "one", cpu="500m", memory="1Gi"))
    requests.put(pod_on("a", "two", cpu="1"))
    requests.put(pod_on("b", "three", cpu="4"))
    assert str(requests.on("a")["cpu"]) == "1500m"
    requests.put(pod_on("a", "two", cpu="2"))  # resized
    assert str(requests.on("a")["cpu"]) == "2500m"
    requests.remove(pod_on("a", "one"))
    assert {name: str(amount) for name, amount in requests.on("a").items()} == {"cpu": "2"}
    requests.remove(pod_on("a", "one"))
    assert str(requests.on("b")["cpu"]) == "4"
    assert requests.on("c") == {}
    # A pod that waits for a node or asks for nonsense asks nothing of a node.
    requests = PodRequests()
    requests.put(pod_on("", "waits", cpu="4"))
    requests.put(pod_on("a", "odd", cpu="many"))
    assert requests.on("a") == {}


def test_what_is_kept_of_a_pod_is_enough_for_its_requests() -> None:
    pod = pod_on("a", "one", cpu="1")
    pod["spec"] |= {
        "initContainers": [
            {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}, "env": [{}]}
        ],
        "overhead": {"cpu": "500m"},
        "volumes": [{"name": "data"}],
    }
    pod["metadata"]["annotations"] = {"long": "text"}
    trimmed = trimmed_pod(pod)
    requests = PodRequests()
    requests.put(trimmed)
    assert str(requests.on("a")["cpu"]) == "3500m"
    assert "volumes" not in trimmed["spec"]
    assert "annotations" not in trimmed["metadata"]
    assert "env" not in trimmed["spec"]["initContainers"][0]
    # Devices are accelerators and what every node has is not.
    obj = node_object("a", cpu="8", memory="32Gi", pods="110", nvidia_com__gpu="4", google_com__tpu="0")
    obj["status"]["allocatable"] |= {"hugepages-2Mi": "1Gi", "ephemeral-storage": "100Gi", "odd": "?"}
    assert node_usage(obj, PodRequests()).accelerators == ["nvidia.com/gpu"]


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
        usage = node_usage(obj, PodRequests())
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
