"""Whether a pod fits on a node, and what is said if not; claims that are waited for."""

from __future__ import annotations

from typing import Any

import pytest
from support.devcluster.stepper import Stepper
from support.workloads import add_node, scheduling

from trainmaster.devcluster.apiserver.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from trainmaster.devcluster.scheduler.filters import explain_insufficiency, filter_node, fit_error
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.quantity import Quantity

NODE = {"metadata": {"name": "n", "labels": {"zone": "desk", "rank": "5"}}, "spec": {}, "status": {}}


def affinity(*expressions: JsonObject) -> JsonObject:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "desk"}}, True),
        ({"nodeSelector": {"zone": "rack"}}, False),
        (affinity({"key": "zone", "operator": "In", "values": ["desk"]}), True),
        (affinity({"key": "zone", "operator": "NotIn", "values": ["desk"]}), False),
        (affinity({"key": "zone", "operator": "Exists"}, {"key": "gpu", "operator": "DoesNotExist"}), True),
        (affinity({"key": "rank", "operator": "Gt", "values": ["4"]}), True),
        (affinity({"key": "rank", "operator": "Lt", "values": ["4"]}), False),
        (affinity({"key": "zone", "operator": "Gt", "values": ["4"]}), False),
        (affinity(), False),
    ],
)
def test_node_selection(spec: JsonObject, fits: bool) -> None:
    assert (filter_node({"spec": spec}, {}, NODE, {}, 0) == []) is fits


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "gpu", "operator": "Exists"}], True),
        ([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}], True),
        ([{"key": "gpu", "value": "no"}], False),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
    ],
)
def test_taints(tolerations: list[JsonObject], fits: bool) -> None:
    node = {**NODE, "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}
    assert (filter_node({"spec": {"tolerations": tolerations}}, {}, node, {}, 0) == []) is fits


def test_a_cordoned_node_takes_nothing() -> None:
    node = {**NODE, "spec": {"unschedulable": True}}
    reasons = filter_node({"spec": {}}, {}, node, {}, 0)
    assert fit_error([reasons], 1) == "0/1 nodes are available: 1 node(s) were unschedulable."


def test_what_was_asked_for_and_what_the_largest_node_has_is_told() -> None:
    """Of what was scarce only, and with nothing that changes while a pod waits."""
    nodes = [{**NODE, "status": {"allocatable": {"cpu": cpu, "memory": "16101900Ki"}}} for cpu in ("1", "2")]
    requests = {name: Quantity.parse(text) for name, text in (("cpu", "1500m"), ("memory", "500Gi"))}
    reasons = [["Insufficient memory"], ["Insufficient memory"]]
    assert explain_insufficiency(requests, reasons, nodes) == (
        " The pod asks for 500Gi memory, the largest node has 15.4Gi: it can never run here."
    )
    assert explain_insufficiency(requests, [["Insufficient cpu"], ["Insufficient cpu"]], nodes) == (
        " The pod asks for 1500m cpu, the largest node has 2, of which other pods use too much."
    )
    assert explain_insufficiency(requests, [["node(s) were unschedulable"]], nodes) == ""


CLAIM: dict[str, Any] = {
    "metadata": {"name": "data", "finalizers": ["example.com/keep"]},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    await add_node(cluster, "n", {"pods": "10"})
    cluster.start(Scheduler(cluster.api))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}}
    await cluster.api.create(PODS, body, namespace="default")
    await cluster.settle()
    return cluster


def pod(cluster: Stepper) -> tuple[str | None, str]:
    found = cluster.api.get(PODS, "default", "p")
    return found["spec"].get("nodeName"), scheduling(cluster, "p").get("message", "")


async def test_a_pod_waits_until_its_claim_exists_and_is_bound(cluster: Stepper) -> None:
    assert pod(cluster) == (None, '0/1 nodes are available: persistentvolumeclaim "data" not found.')
    created = await cluster.api.create(PERSISTENT_VOLUME_CLAIMS, CLAIM, namespace="default")
    await cluster.settle()
    assert pod(cluster) == (None, "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    bound = {**created, "status": {"phase": "Bound"}}
    await cluster.api.update(PERSISTENT_VOLUME_CLAIMS, bound, subresource="status")
    await cluster.settle()
    assert pod(cluster)[0] == "n"


async def test_a_claim_that_is_being_deleted_is_none(cluster: Stepper) -> None:
    await cluster.api.create(PERSISTENT_VOLUME_CLAIMS, CLAIM, namespace="default")
    await cluster.delete(PERSISTENT_VOLUME_CLAIMS, "data")
    assert pod(cluster) == (None, '0/1 nodes are available: persistentvolumeclaim "data" is being deleted.')
