"""Nodes that fail, come back or are deleted, and what becomes of their pods, in virtual time."""

from typing import Any

import pytest
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.registry.generic import PatchType
from trainmaster.devcluster.apiserver.resources import NODES, PODS
from trainmaster.devcluster.controllers.nodelifecycle import NodeLifecycleController
from trainmaster.devcluster.controllers.objects import find_condition
from trainmaster.devcluster.controllers.tainteviction import TaintEvictionController
from trainmaster.devcluster.settings import FAILED_ANNOTATION
from trainmaster.runtime.jsontree import JsonObject

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    """A node with a pod that runs."""
    node = await cluster.api.create(NODES, {"metadata": {"name": "n"}})
    await cluster.api.update(NODES, {**node, "status": {"conditions": [READY]}}, subresource="status")
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    pod = await cluster.api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default")
    cluster.start(NodeLifecycleController(cluster.api, grace_period=50), TaintEvictionController(cluster.api))
    await cluster.set_pod(pod, "Running")
    return cluster


async def annotate(cluster: Stepper, value: str | None) -> None:
    change = {"metadata": {"annotations": {FAILED_ANNOTATION: value}}}
    await cluster.api.patch(NODES, None, "n", change, patch_type=PatchType.MERGE)
    await cluster.settle()


def readiness(cluster: Stepper) -> tuple[str, str]:
    """Of the node, and of its pod."""
    objects = cluster.api.get(NODES, None, "n"), cluster.api.get(PODS, "default", "p")
    node, pod = (str((find_condition(each, "Ready") or {}).get("status")) for each in objects)
    return node, pod


def taints(cluster: Stepper) -> list[tuple[str, str]]:
    found = cluster.api.get(NODES, None, "n")["spec"].get("taints") or ()
    return [(each["key"].removeprefix("node.kubernetes.io/"), each["effect"]) for each in found]


def disruption(pod: JsonObject) -> Any:
    return (find_condition(pod, "DisruptionTarget") or {}).get("reason")


async def test_a_failed_node_is_unreachable_after_a_while_and_its_pods_hang_until_it_is_back(cluster: Stepper) -> None:
    await annotate(cluster, "")
    await cluster.advance(49)
    assert (readiness(cluster), taints(cluster)) == (("True", "True"), [])
    await cluster.advance(1)
    assert readiness(cluster) == ("Unknown", "False")
    assert taints(cluster) == [("unreachable", "NoSchedule"), ("unreachable", "NoExecute")]
    await cluster.advance(299)
    assert "deletionTimestamp" not in cluster.api.get(PODS, "default", "p")["metadata"]
    await cluster.advance(600)
    pod = cluster.api.get(PODS, "default", "p")
    assert "deletionTimestamp" in pod["metadata"]
    assert disruption(pod) == "DeletionByTaintManager"
    await annotate(cluster, None)
    node = cluster.api.get(NODES, None, "n")
    await cluster.api.update(NODES, {**node, "status": {"conditions": [READY]}}, subresource="status")
    await cluster.settle()
    assert taints(cluster) == []


async def test_a_node_that_is_back_in_time_was_never_lost(cluster: Stepper) -> None:
    for _ in range(2):
        await annotate(cluster, "")
        await cluster.advance(30)
        await annotate(cluster, None)
    await cluster.advance(60)
    assert (readiness(cluster), taints(cluster)) == (("True", "True"), [])


async def test_pods_of_a_deleted_node_are_removed_after_a_while(cluster: Stepper) -> None:
    kept = cluster.api.get(PODS, "default", "p")
    await cluster.api.update(PODS, {**kept, "metadata": {**kept["metadata"], "finalizers": ["example.com/kept"]}})
    await cluster.delete(NODES, "n", namespace=None)
    await cluster.advance(39)
    assert disruption(cluster.api.get(PODS, "default", "p")) is None
    await cluster.advance(1)
    pod = cluster.api.get(PODS, "default", "p")
    assert (pod["status"]["phase"], disruption(pod)) == ("Failed", "DeletionByPodGC")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 0


async def test_out_of_service_removes_what_is_being_deleted(cluster: Stepper) -> None:
    await annotate(cluster, "")
    await cluster.advance(50)
    node = cluster.api.get(NODES, None, "n")
    spec = {"taints": [*node["spec"]["taints"], {**OUT_OF_SERVICE, "effect": "NoSchedule"}]}
    await cluster.api.update(NODES, {**node, "spec": spec})
    await cluster.settle()
    assert cluster.exists(PODS, "p"), "nobody has deleted it"
    await cluster.delete(PODS, "p")
    assert not cluster.exists(PODS, "p")
