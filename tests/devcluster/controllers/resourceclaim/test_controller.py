"""Dynamic resource allocation: claims from templates, devices of slices, and pods that wait for them."""

from __future__ import annotations

from typing import Any

import pytest
from support.apiserver import assert_refused
from support.devcluster.stepper import Stepper
from support.workloads import add_node, bound, scheduling

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import (
    DEVICE_CLASSES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from trainmaster.devcluster.controllers.garbagecollector.controller import GarbageCollector
from trainmaster.devcluster.controllers.resourceclaim.controller import ResourceClaimController
from trainmaster.devcluster.crds.install import GANG_DEFINITIONS, install_definitions
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.runtime.jsontree import JsonObject

DRIVER = "gpu.example.com"


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    await add_node(cluster, "laptop", {"pods": "50"})
    await cluster.api.create(DEVICE_CLASSES, device_class())
    start(cluster)
    return cluster


def start(cluster: Stepper) -> None:
    for kind in (ResourceClaimController, Scheduler, GarbageCollector):
        cluster.start(kind(cluster.api))


def device_class(*expressions: str, name: str = "gpu") -> JsonObject:
    wanted = expressions or (f'device.driver == "{DRIVER}"',)
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": each}} for each in wanted]}}


def request(count: int = 1, **exactly: Any) -> JsonObject:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count, **exactly}}


def claim_spec(*requests: JsonObject, **more: Any) -> JsonObject:
    return {"devices": {"requests": list(requests or [request()]), **more}}


async def devices(cluster: Stepper, *names: str, driver: str = DRIVER, **place: Any) -> None:
    pool = {"name": driver, "generation": 1, "resourceSliceCount": 1}
    offered = [{"name": name, "attributes": {"model": {"string": "fake"}}} for name in names]
    body = {
        "metadata": {"name": f"slice-of-{driver}"},
        "spec": {"driver": driver, "pool": pool, "devices": offered, **(place or {"nodeName": "laptop"})},
    }
    await cluster.api.create(RESOURCE_SLICES, body)
    await cluster.settle()


async def template(cluster: Stepper, count: int = 1) -> None:
    body = {
        "metadata": {"name": "gpus"},
        "spec": {"metadata": {"labels": {"a": "b"}}, "spec": claim_spec(request(count))},
    }
    await cluster.api.create(RESOURCE_CLAIM_TEMPLATES, body, namespace="default")


async def claim(cluster: Stepper, name: str = "shared", **spec: Any) -> JsonObject:
    body = {"metadata": {"name": name}, "spec": spec or claim_spec()}
    return await cluster.api.create(RESOURCE_CLAIMS, body, namespace="default")


async def pod(cluster: Stepper, name: str, *, labels: JsonObject | None = None, **source: str) -> None:
    entry = {"name": "gpu", **(source or {"resourceClaimTemplateName": "gpus"})}
    container = {"name": "main", "image": "img", "resources": {"claims": [{"name": "gpu"}]}}
    body = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [container], "resourceClaims": [entry], "terminationGracePeriodSeconds": 0},
    }
    await cluster.api.create(PODS, body, namespace="default")
    await cluster.settle()


def message(cluster: Stepper, name: str) -> str:
    return str(scheduling(cluster, name).get("message", ""))


def allocated(cluster: Stepper) -> list[str]:
    return [
        result["device"]
        for each in cluster.objects(RESOURCE_CLAIMS)
        for result in each.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    ]


async def test_a_pod_gets_a_claim_and_the_claim_a_device(cluster: Stepper) -> None:
    await devices(cluster, "gpu-0", "gpu-1")
    await template(cluster)
    await pod(cluster, "p")
    (made,) = cluster.objects(RESOURCE_CLAIMS)
    metadata, shown = made["metadata"], cluster.api.get(PODS, "default", "p")
    assert metadata["name"].startswith("p-gpu-")
    assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert metadata["labels"] == {"a": "b"}
    assert metadata["ownerReferences"][0]["name"] == "p"
    assert metadata["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert shown["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": metadata["name"]}]
    assert made["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": shown["metadata"]["uid"]}]
    assert made["status"]["allocation"]["devices"]["results"] == [
        {"request": "gpu", "driver": DRIVER, "pool": DRIVER, "device": "gpu-0"}
    ]
    assert bound(cluster) == ["p"]


async def test_without_a_device_a_pod_waits_for_one(cluster: Stepper) -> None:
    await template(cluster, count=2)
    await devices(cluster, "gpu-0")
    await pod(cluster, "p")
    assert (bound(cluster), allocated(cluster)) == ([], [])
    assert message(cluster, "p") == "0/1 nodes are available: 1 cannot allocate all claims."
    assert "FailedScheduling" in cluster.reasons("p")
    known = cluster.objects(RESOURCE_SLICES, None)[0]
    spec = {**known["spec"], "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}
    await cluster.api.update(RESOURCE_SLICES, {**known, "spec": spec})
    await cluster.settle()
    assert (bound(cluster), allocated(cluster)) == (["p"], ["gpu-0", "gpu-1"])


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "deleted"])
async def test_the_end_of_a_pod_frees_its_devices(cluster: Stepper, end: str) -> None:
    await devices(cluster, "gpu-0")
    await template(cluster)
    await pod(cluster, "a")
    await pod(cluster, "b")
    assert bound(cluster) == ["a"]
    if end == "deleted":
        await cluster.delete(PODS, "a")
    else:
        await cluster.set_pod(cluster.api.get(PODS, "default", "a"), end)
    assert "b" in bound(cluster)
    assert [each["metadata"]["ownerReferences"][0]["name"] for each in cluster.objects(RESOURCE_CLAIMS)] == ["b"]


async def test_a_claim_can_be_shared_and_stays(cluster: Stepper) -> None:
    await devices(cluster, "gpu-0")
    await claim(cluster)
    await pod(cluster, "a", resourceClaimName="shared")
    await pod(cluster, "b", resourceClaimName="shared")
    (shared,) = cluster.objects(RESOURCE_CLAIMS)
    assert [each["name"] for each in shared["status"]["reservedFor"]] == ["a", "b"]
    assert allocated(cluster) == ["gpu-0"]
    for name in "ab":
        await cluster.delete(PODS, name)
    (shared,) = cluster.objects(RESOURCE_CLAIMS)
    assert (shared.get("status"), shared["metadata"].get("finalizers")) in [({}, None), (None, None), ({}, [])]


async def test_a_claim_in_use_is_deleted_only_afterwards(cluster: Stepper) -> None:
    await devices(cluster, "gpu-0")
    await claim(cluster)
    await pod(cluster, "a", resourceClaimName="shared")
    await cluster.delete(RESOURCE_CLAIMS, "shared")
    assert cluster.exists(RESOURCE_CLAIMS, "shared")
    await cluster.delete(PODS, "a")
    assert not cluster.exists(RESOURCE_CLAIMS, "shared")


async def test_what_a_pod_waits_for_is_told(cluster: Stepper) -> None:
    await pod(cluster, "a", resourceClaimName="shared")
    assert message(cluster, "a") == '0/1 nodes are available: resourceclaim "shared" not found.'
    await pod(cluster, "b")
    assert message(cluster, "b") == ("0/1 nodes are available: waiting for the resource claim of gpu to be created.")
    assert "FailedResourceClaimCreation" in cluster.reasons("b")
    await claim(cluster, **claim_spec(request(deviceClassName="tpu")))
    await cluster.settle()
    assert message(cluster, "a") == "0/1 nodes are available: request gpu: device class tpu does not exist."
    await devices(cluster, "gpu-0")
    await template(cluster)
    await cluster.settle()
    assert bound(cluster) == ["b"]


async def test_devices_of_other_drivers_and_nodes_do_not_count(cluster: Stepper) -> None:
    await devices(cluster, "gpu-0", nodeName="other")
    await devices(cluster, "tpu-0", driver="tpu.example.com", allNodes=True)
    await template(cluster)
    await pod(cluster, "p")
    assert bound(cluster) == []


async def test_a_group_gets_all_its_devices_or_none(cluster: Stepper) -> None:
    await install_definitions(cluster.api, GANG_DEFINITIONS)
    await devices(cluster, "gpu-0")
    await template(cluster)
    body = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"minMember": 2},
    }
    await cluster.api.create(POD_GROUPS, body, namespace="default")
    for name in "ab":
        await pod(cluster, name, labels={"scheduling.x-k8s.io/pod-group": "train"})
    assert (bound(cluster), allocated(cluster)) == ([], [])
    await devices(cluster, "gpu-9", driver="more.example.com")
    await cluster.api.delete(DEVICE_CLASSES, None, "gpu")
    await cluster.api.create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
    await cluster.settle()
    assert (bound(cluster), sorted(allocated(cluster))) == (["a", "b"], ["gpu-0", "gpu-9"])


async def test_a_restart_makes_no_second_claim(cluster: Stepper) -> None:
    """A crash between the claim and the pod's status must not leave a claim that nobody uses."""
    await template(cluster)
    await pod(cluster, "p")
    shown = cluster.api.get(PODS, "default", "p")
    cluster.stop()
    status = {key: value for key, value in shown["status"].items() if key != "resourceClaimStatuses"}
    await cluster.api.update(PODS, {**shown, "status": status}, subresource="status")
    start(cluster)
    await cluster.settle()
    assert (
        cluster.api.get(PODS, "default", "p")["status"]["resourceClaimStatuses"]
        == shown["status"]["resourceClaimStatuses"]
    )
    assert len(cluster.objects(RESOURCE_CLAIMS)) == 1


@pytest.mark.parametrize(
    "spec",
    [
        claim_spec({"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}),
        claim_spec({"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}),
        claim_spec(request(adminAccess=True)),
        claim_spec(request(selectors=[{"cel": {"expression": "true"}}])),
        claim_spec(request(), constraints=[{"matchAttribute": "gpu.example.com/numa"}]),
    ],
)
async def test_what_would_never_be_allocated_is_not_accepted(cluster: Stepper, spec: JsonObject) -> None:
    await assert_refused(claim(cluster, **spec), 501)
    expression = 'device.attributes["gpu.example.com"].model == "fake"'
    await assert_refused(cluster.api.create(DEVICE_CLASSES, device_class(expression, name="fake")), 501)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (claim_spec({"name": "gpu"}), "spec.devices.requests[0]: Required value"),
        (
            claim_spec(request(-1)),
            "spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
        ),
        (claim_spec(request(), request()), 'spec.devices.requests[1].name: Duplicate value: "gpu"'),
        (claim_spec(request(allocationMode="Some")), 'Unsupported value: "Some"'),
        (claim_spec({"name": "gpu", "exactly": {}}), "deviceClassName"),
    ],
)
async def test_malformed_claims_are_refused(cluster: Stepper, spec: JsonObject, complaint: str) -> None:
    await assert_refused(claim(cluster, **spec), 422, complaint)


async def test_a_claim_never_changes_its_wish(cluster: Stepper) -> None:
    known = await claim(cluster)
    with pytest.raises(StatusError, match="field is immutable"):
        await cluster.api.update(RESOURCE_CLAIMS, {**known, "spec": claim_spec(request(2))})


async def test_malformed_slices_are_refused(cluster: Stepper) -> None:
    with pytest.raises(StatusError, match="exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"):
        await devices(cluster, "a", nodeName="laptop", allNodes=True)
    with pytest.raises(StatusError, match=r"spec\.devices\[1\]\.name: Duplicate value"):
        await devices(cluster, "a", "a")
