from __future__ import annotations

from typing import Any

import pytest
from support.devcluster.stepper import Stepper
from support.workloads import GPU, add_node, scheduling

from trainmaster.devcluster.apiserver.resources import NODES, PODS
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    allocatable = {"cpu": "4", "memory": "8Gi", GPU: "2", "pods": "5"}
    await add_node(cluster, "laptop", allocatable, labels={"zone": "desk"})
    cluster.start(Scheduler(cluster.api))
    return cluster


def manifest(name: str, limits: JsonObject | None = None, **spec: Any) -> JsonObject:
    container = {"name": "main", "image": "img", "resources": {"limits": limits or {}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


async def create(cluster: Stepper, name: str, limits: JsonObject | None = None, **spec: Any) -> None:
    await cluster.api.create(PODS, manifest(name, limits, **spec), namespace="default")
    await cluster.settle()


def node_of(cluster: Stepper, name: str) -> str | None:
    found: str | None = cluster.api.get(PODS, "default", name)["spec"].get("nodeName")
    return found


async def test_a_pod_is_bound_or_waits_until_there_is_room(cluster: Stepper) -> None:
    await create(cluster, "a", {"cpu": "1", GPU: "2"})
    assert node_of(cluster, "a") == "laptop"
    assert scheduling(cluster, "a")["status"] == "True"
    assert cluster.reasons("a") == ["Scheduled"]
    await create(cluster, "b", {GPU: "1"})
    assert node_of(cluster, "b") is None
    assert scheduling(cluster, "b")["status"] == "False"
    assert scheduling(cluster, "b")["reason"] == "Unschedulable"
    assert scheduling(cluster, "b")["message"] == (
        f"0/1 nodes are available: 1 Insufficient {GPU}. "
        f"The pod asks for 1 {GPU}, the largest node has 2, of which other pods use too much."
    )
    assert cluster.reasons("b") == ["FailedScheduling"]
    await cluster.set_pod(cluster.api.get(PODS, "default", "a"), "Succeeded")
    assert node_of(cluster, "b") == "laptop"


async def test_a_deleted_pod_frees_its_share(cluster: Stepper) -> None:
    await create(cluster, "a", {"cpu": "3"}, terminationGracePeriodSeconds=0)
    await create(cluster, "b", {"cpu": "2"})
    assert node_of(cluster, "b") is None
    await cluster.delete(PODS, "a")
    assert node_of(cluster, "b") == "laptop"


async def test_the_most_important_waiting_pod_comes_first(cluster: Stepper) -> None:
    await create(cluster, "a", {GPU: "2"})
    await create(cluster, "low", {GPU: "2"})
    cluster.now = cluster.now.replace(minute=1)
    await create(cluster, "high", {GPU: "2"}, priority=10)
    await cluster.set_pod(cluster.api.get(PODS, "default", "a"), "Failed")
    assert (node_of(cluster, "high"), node_of(cluster, "low")) == ("laptop", None)


async def test_every_missing_resource_is_named_also_one_that_nobody_knows(cluster: Stepper) -> None:
    await create(cluster, "a", {"cpu": "5", "memory": "9Gi"})
    assert scheduling(cluster, "a")["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. The pod asks for 5 cpu, the largest node "
        "has 4; for 9Gi memory, the largest node has 8Gi: it can never run here."
    )
    await create(cluster, "b", {"amd.com/gpu": "1"})
    assert scheduling(cluster, "b")["message"] == (
        "0/1 nodes are available: 1 Insufficient amd.com/gpu. "
        "The pod asks for 1 amd.com/gpu, the largest node has 0: it can never run here."
    )


async def test_growing_the_node_lets_waiting_pods_in(cluster: Stepper) -> None:
    await create(cluster, "a", {"cpu": "5"})
    node = cluster.api.get(NODES, None, "laptop")
    status = {**node["status"], "allocatable": {**node["status"]["allocatable"], "cpu": "8"}}
    await cluster.api.update(NODES, {**node, "status": status}, subresource="status")
    await cluster.settle()
    assert node_of(cluster, "a") == "laptop"


async def test_without_a_node_pods_wait(cluster: Stepper) -> None:
    await cluster.delete(NODES, "laptop", namespace=None)
    await create(cluster, "a")
    assert scheduling(cluster, "a")["message"] == "no nodes available to schedule pods"


async def test_gated_pods_and_those_of_other_schedulers_are_left_alone(cluster: Stepper) -> None:
    await create(cluster, "gated", schedulingGates=[{"name": "acme.io/gate"}])
    await create(cluster, "foreign", schedulerName="acme")
    assert (node_of(cluster, "gated"), node_of(cluster, "foreign")) == (None, None)
    gated = cluster.api.get(PODS, "default", "gated")
    await cluster.api.update(PODS, {**gated, "spec": {**gated["spec"], "schedulingGates": []}})
    await cluster.settle()
    assert node_of(cluster, "gated") == "laptop"


async def test_a_restarted_scheduler_counts_what_runs(cluster: Stepper) -> None:
    await create(cluster, "a", {GPU: "2"})
    cluster.stop()
    cluster.start(Scheduler(cluster.api))
    await create(cluster, "b", {GPU: "1"})
    assert node_of(cluster, "b") is None


async def test_too_many_pods(cluster: Stepper) -> None:
    for number in range(6):
        await create(cluster, f"p{number}")
    assert scheduling(cluster, "p5")["message"] == "0/1 nodes are available: 1 Too many pods."


async def test_two_pods_do_not_get_one_port_of_the_host(cluster: Stepper) -> None:
    async def serve(name: str, **port: Any) -> str | None:
        ports = [{"containerPort": 80, "hostPort": 8080, **port}]
        await create(cluster, name, containers=[{"name": "main", "image": "img", "ports": ports}])
        return node_of(cluster, name)

    assert await serve("first", hostIP="127.0.0.1") == "laptop"
    assert await serve("second") is None
    text = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    assert scheduling(cluster, "second")["message"] == text
    assert await serve("other", hostPort=8081) == "laptop"
    assert await serve("udp", protocol="UDP") == "laptop"
    assert await serve("ip", hostIP="127.0.0.2") == "laptop"
    await cluster.set_pod(cluster.api.get(PODS, "default", "first"), "Succeeded")
    await cluster.settle()
    assert node_of(cluster, "second") is None, "the one at another address is still there"
    await cluster.set_pod(cluster.api.get(PODS, "default", "ip"), "Succeeded")
    await cluster.settle()
    assert node_of(cluster, "second") == "laptop"


async def test_a_pod_that_claims_devices_waits_and_is_told_why(cluster: Stepper) -> None:
    await create(cluster, "a", resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "four"}])
    text = "cannot allocate all claims: the embedded cluster has no devices; use a cluster with a driver for them"
    assert scheduling(cluster, "a")["message"] == f"0/1 nodes are available: {text}."


async def test_pods_are_spread_to_where_most_is_left(cluster: Stepper) -> None:
    await add_node(cluster, "server", {"cpu": "8", "memory": "16Gi", "pods": "5"})
    for name, request in (("a", "4"), ("b", "1"), ("c", "2"), ("d", "0")):
        await create(cluster, name, {"cpu": request})
    assert [node_of(cluster, name) for name in "abcd"] == ["server", "laptop", "laptop", "server"]
    for name in "efg":
        await create(cluster, name, nodeSelector={"zone": "desk"} if name == "g" else {})
    assert [node_of(cluster, name) for name in "efg"] == ["server", "server", "laptop"]
