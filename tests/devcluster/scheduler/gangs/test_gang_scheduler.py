"""Groups of pods on the scheduler: all at once or not at all, in both dialects."""

from __future__ import annotations

from typing import Any

import pytest
from support.apiserver import assert_refused
from support.devcluster.stepper import Stepper
from support.workloads import GPU, bound, scheduling

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType
from trainmaster.devcluster.apiserver.resources import (
    POD_GROUPS,
    PODS,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
    GroupResource,
)
from trainmaster.devcluster.controllers.volcanoqueue import QueueController
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.runtime.jsontree import JsonObject

TOO_FEW_GPUS = f"0/1 nodes are available: 1 Insufficient {GPU}."
GPUS_IN_USE = f"{TOO_FEW_GPUS} The pod asks for 2 {GPU}, the largest node has 4, of which other pods use too much."


def start(cluster: Stepper) -> None:
    cluster.start(Scheduler(cluster.api), QueueController(cluster.api))


async def group(cluster: Stepper, name: str = "train", *, volcano: bool = False, **spec: Any) -> None:
    resource = VOLCANO_POD_GROUPS if volcano else POD_GROUPS
    version = "scheduling.volcano.sh/v1beta1" if volcano else "scheduling.x-k8s.io/v1alpha1"
    body = {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    await cluster.api.create(resource, body, namespace="default")
    await cluster.settle()


async def pod(
    cluster: Stepper,
    name: str,
    *,
    of: str = "train",
    gpus: int = 1,
    volcano: bool = False,
    metadata: JsonObject | None = None,
    **spec: Any,
) -> None:
    mark = {"annotations": {"scheduling.k8s.io/group-name": of}} if volcano else {"labels": {LABEL: of}}
    mark |= metadata or {}
    container = {"name": "main", "image": "img", "resources": {"limits": {GPU: str(gpus)}}}
    body: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **mark},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }
    if volcano:
        body["spec"].setdefault("schedulerName", "volcano")
    await cluster.api.create(PODS, body, namespace="default")
    await cluster.settle()


LABEL = "scheduling.x-k8s.io/pod-group"


def status(cluster: Stepper, name: str = "train", *, volcano: bool = False) -> JsonObject:
    found: JsonObject = cluster.api.get(VOLCANO_POD_GROUPS if volcano else POD_GROUPS, "default", name).get(
        "status", {}
    )
    return found


def group_condition(cluster: Stepper, kind: str) -> JsonObject:
    conditions = status(cluster, volcano=True).get("conditions", [])
    found: JsonObject = next((each for each in conditions if each["type"] == kind), {})
    return found


@pytest.mark.parametrize("volcano", [False, True])
async def test_no_pod_starts_before_all_are_there(cluster: Stepper, volcano: bool) -> None:
    await group(cluster, volcano=volcano, minMember=3)
    await pod(cluster, "a", volcano=volcano)
    await pod(cluster, "b", volcano=volcano)
    assert bound(cluster) == []
    assert scheduling(cluster, "a")["reason"] == "Unschedulable"
    assert scheduling(cluster, "a")["message"] == (
        "0/1 nodes are available: cannot find enough sibling pods, current pods number: 1, minMember of group: 3."
    )
    assert cluster.reasons("a") == ["FailedScheduling"]
    await pod(cluster, "c", volcano=volcano)
    assert bound(cluster) == ["a", "b", "c"]
    assert scheduling(cluster, "a")["status"] == "True"


@pytest.mark.parametrize("volcano", [False, True])
async def test_no_pod_starts_before_all_fit(cluster: Stepper, volcano: bool) -> None:
    await group(cluster, volcano=volcano, minMember=3)
    for name in "abc":
        await pod(cluster, name, gpus=2, volcano=volcano)
    assert bound(cluster) == []
    assert {scheduling(cluster, name)["message"] for name in "abc"} == {GPUS_IN_USE}
    assert set(cluster.reasons("a")) == {"FailedScheduling"}


async def test_waiting_costs_no_writes_beyond_one_for_each_pod(cluster: Stepper) -> None:
    """A group of a thousand pods must not have all its pods written anew with every pod that comes."""
    await group(cluster, minMember=20)
    for number in range(10):
        await pod(cluster, f"p{number}", gpus=0)
    before = cluster.api.get(PODS, "default", "p0")["metadata"]["resourceVersion"]
    await pod(cluster, "last", gpus=0)
    assert cluster.api.get(PODS, "default", "p0")["metadata"]["resourceVersion"] == before


async def test_two_groups_that_do_not_fit_together_run_one_after_the_other(cluster: Stepper) -> None:
    await group(cluster, "left", minMember=2)
    await group(cluster, "right", minMember=2)
    for name in ("left-0", "right-0", "left-1", "right-1"):
        await pod(cluster, name, of=name.split("-")[0], gpus=2)
    assert bound(cluster) == ["left-0", "left-1"]
    assert status(cluster, "right")["phase"] == "Scheduling"
    for name in ("left-0", "left-1"):
        await cluster.set_pod(cluster.api.get(PODS, "default", name), "Succeeded")
    assert bound(cluster) == ["left-0", "left-1", "right-0", "right-1"]
    assert status(cluster, "left")["phase"] == "Finished"


async def test_the_resources_of_the_group_have_to_be_free_together(cluster: Stepper) -> None:
    await group(cluster, minMember=1, minResources={GPU: "5"})
    await pod(cluster, "a")
    assert bound(cluster) == []
    assert scheduling(cluster, "a")["message"] == TOO_FEW_GPUS
    known = cluster.api.get(POD_GROUPS, "default", "train")
    await cluster.api.update(POD_GROUPS, {**known, "spec": {"minMember": 1, "minResources": {GPU: 4}}})
    await cluster.settle()
    assert bound(cluster) == ["a"]


async def test_more_pods_than_needed_start_as_far_as_they_fit(cluster: Stepper) -> None:
    await group(cluster, minMember=2)
    for name in "abc":
        await pod(cluster, name, gpus=2)
    assert bound(cluster) == ["a", "b"]
    assert scheduling(cluster, "c")["message"] == GPUS_IN_USE


async def test_a_lost_pod_is_replaced_without_the_others_starting_again(cluster: Stepper) -> None:
    await group(cluster, minMember=2)
    await pod(cluster, "a")
    await pod(cluster, "b")
    await cluster.set_pods("Running")
    await cluster.set_pod(cluster.api.get(PODS, "default", "b"), "Failed")
    await pod(cluster, "b2")
    assert bound(cluster) == ["a", "b", "b2"]


async def test_gated_pods_do_not_count(cluster: Stepper) -> None:
    await group(cluster, minMember=2)
    await pod(cluster, "a")
    await pod(cluster, "b", schedulingGates=[{"name": "acme.io/gate"}])
    assert bound(cluster) == []
    gated = cluster.api.get(PODS, "default", "b")
    await cluster.api.update(PODS, {**gated, "spec": {**gated["spec"], "schedulingGates": []}})
    await cluster.settle()
    assert bound(cluster) == ["a", "b"]


async def test_pods_wait_for_their_group(cluster: Stepper) -> None:
    await pod(cluster, "a")
    assert scheduling(cluster, "a")["message"] == "0/1 nodes are available: PodGroup default/train not found."
    await group(cluster, minMember=1)
    assert bound(cluster) == ["a"]


async def test_the_more_important_group_comes_first(cluster: Stepper) -> None:
    await group(cluster, "first", minMember=1)
    await pod(cluster, "first-0", of="first", gpus=4)
    for name, priority in (("low", 0), ("high", 10)):
        await group(cluster, name, minMember=1)
        await pod(cluster, f"{name}-0", of=name, gpus=4, priority=priority)
    await cluster.set_pod(cluster.api.get(PODS, "default", "first-0"), "Failed")
    assert bound(cluster) == ["first-0", "high-0"]


async def test_a_group_caught_half_bound_is_completed_before_any_other(cluster: Stepper) -> None:
    """A crash between two bindings leaves a started group; others could take its room and wait for it for ever."""
    await group(cluster, "left", minMember=2)
    await group(cluster, "right", minMember=2)
    await pod(cluster, "blocker", of="none", gpus=4, nodeName="laptop")
    for name in ("left-0", "left-1", "right-0", "right-1"):
        await pod(cluster, name, of=name.split("-")[0], gpus=2)
    cluster.stop()
    patch = {"spec": {"nodeName": "laptop"}}
    await cluster.api.patch(PODS, "default", "right-0", patch, patch_type=PatchType.MERGE, subresource="binding")
    start(cluster)
    await cluster.settle()
    await cluster.delete(PODS, "blocker")
    assert bound(cluster) == ["right-0", "right-1"]


async def test_a_binding_that_fails_is_repeated_until_the_group_is_complete(
    cluster: Stepper, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Api.patch
    refused: list[str] = []

    async def patch(self: Api, resource: GroupResource, namespace: Any, name: str, *args: Any, **options: Any) -> Any:
        if name == "b" and len(refused) < 2:
            refused.append(name)
            raise StatusError(500, "InternalError", "a webhook is away")
        return await real(self, resource, namespace, name, *args, **options)

    monkeypatch.setattr(Api, "patch", patch)
    await group(cluster, minMember=2)
    await pod(cluster, "a")
    await pod(cluster, "b")
    await cluster.advance(10)
    assert (bound(cluster), len(refused)) == (["a", "b"], 2)


async def test_a_settled_group_costs_nothing_after_a_restart(cluster: Stepper) -> None:
    await group(cluster, minMember=2)
    await group(cluster, "large", volcano=True, minMember=1)
    await pod(cluster, "a")
    await pod(cluster, "b")
    await pod(cluster, "c", of="large", volcano=True, gpus=4)
    cluster.stop()
    before = cluster.api.revision
    start(cluster)
    await cluster.settle()
    assert cluster.api.revision == before


async def test_phases_of_coscheduling(cluster: Stepper) -> None:
    await group(cluster, minMember=2)
    assert status(cluster) == {"phase": "Pending"}
    await pod(cluster, "a", gpus=4)
    await pod(cluster, "b", gpus=1)
    assert status(cluster)["phase"] == "Scheduling"
    assert status(cluster)["scheduleStartTime"] == "2026-01-01T00:00:00Z"
    await cluster.delete(PODS, "a")
    assert status(cluster)["phase"] == "Pending"
    await pod(cluster, "c")
    assert status(cluster)["phase"] == "Scheduled"
    await cluster.set_pods("Running")
    assert (status(cluster)["phase"], status(cluster)["running"]) == ("Running", 2)
    await cluster.set_pod(cluster.api.get(PODS, "default", "b"), "Succeeded")
    assert (status(cluster)["phase"], status(cluster)["succeeded"]) == ("Running", 1)
    await cluster.set_pod(cluster.api.get(PODS, "default", "c"), "Succeeded")
    assert (status(cluster)["phase"], status(cluster)["succeeded"]) == ("Finished", 2)
    assert "running" not in status(cluster)
    for name in "bc":
        await cluster.delete(PODS, name)
    assert (status(cluster)["phase"], status(cluster)["succeeded"]) == ("Finished", 2)
    await pod(cluster, "again")
    assert status(cluster)["phase"] == "Pending"


async def test_the_owner_of_the_pods_is_named_and_a_failed_group_shows_it(cluster: Stepper) -> None:
    await group(cluster, minMember=1)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-node-0", "uid": "1", "controller": True}
    await pod(cluster, "a", metadata={"ownerReferences": [owner]})
    assert status(cluster)["occupiedBy"] == "default/train-node-0"
    await cluster.set_pods("Failed")
    assert (status(cluster)["phase"], status(cluster)["failed"]) == ("Failed", 1)


async def test_each_attempt_has_its_time(cluster: Stepper) -> None:
    await group(cluster, minMember=1, scheduleTimeoutSeconds=60)
    await pod(cluster, "a", gpus=5)
    await cluster.advance(59)
    assert cluster.reasons("train") == []
    await cluster.advance(2)
    assert cluster.reasons("train") == ["Timeout"]
    assert status(cluster)["scheduleStartTime"] == "2026-01-01T00:01:00Z"
    assert status(cluster)["phase"] == "Scheduling"


async def test_phases_and_conditions_of_volcano(cluster: Stepper) -> None:
    await group(cluster, volcano=True, minMember=2, minResources={GPU: "5"})
    assert status(cluster, volcano=True)["phase"] == "Pending"
    known = cluster.api.get(VOLCANO_POD_GROUPS, "default", "train")
    await cluster.api.update(VOLCANO_POD_GROUPS, {**known, "spec": {"minMember": 2}})
    await pod(cluster, "a", volcano=True, gpus=4)
    assert status(cluster, volcano=True)["phase"] == "Inqueue"
    assert group_condition(cluster, "Unschedulable")["reason"] == "NotEnoughTasks"
    assert group_condition(cluster, "Unschedulable")["message"] == (
        "Not enough valid tasks for gang-scheduling, valid: 1, min: 2"
    )
    await pod(cluster, "b", volcano=True, gpus=1)
    assert group_condition(cluster, "Unschedulable")["reason"] == "NotEnoughResources"
    assert group_condition(cluster, "Unschedulable")["message"] == (
        f"2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; {TOO_FEW_GPUS} "
        f"The pod asks for 1 {GPU}, the largest node has 4, of which other pods use too much."
    )
    assert set(cluster.reasons("train")) == {"Unschedulable"}
    await cluster.delete(PODS, "a")
    await pod(cluster, "c", volcano=True)
    assert status(cluster, volcano=True)["phase"] == "Running"
    assert group_condition(cluster, "Unschedulable")["status"] == "False"
    assert group_condition(cluster, "Scheduled")["status"] == "True"
    assert group_condition(cluster, "Scheduled")["reason"] == "tasks in gang are ready to be scheduled"
    await cluster.set_pods("Running")
    assert status(cluster, volcano=True)["running"] == 2
    await cluster.set_pods("Succeeded")
    assert (status(cluster, volcano=True)["phase"], status(cluster, volcano=True)["succeeded"]) == ("Completed", 2)


async def test_a_volcano_group_that_lost_pods_is_unknown(cluster: Stepper) -> None:
    await group(cluster, volcano=True, minMember=2)
    await pod(cluster, "a", volcano=True)
    await pod(cluster, "b", volcano=True)
    await cluster.set_pods("Running")
    await cluster.set_pod(cluster.api.get(PODS, "default", "b"), "Failed")
    assert status(cluster, volcano=True)["phase"] == "Unknown"


async def test_volcano_counts_by_task(cluster: Stepper) -> None:
    await group(cluster, volcano=True, minMember=1, minTaskMember={"master": 1})
    await pod(cluster, "a", volcano=True)
    assert bound(cluster) == []
    marks = {"scheduling.k8s.io/group-name": "train", "volcano.sh/task-spec": "master"}
    await pod(cluster, "b", volcano=True, metadata={"annotations": marks})
    assert bound(cluster) == ["a", "b"]


async def test_a_group_waits_for_its_queue(cluster: Stepper) -> None:
    await group(cluster, volcano=True, minMember=1, queue="research")
    await pod(cluster, "a", volcano=True)
    assert scheduling(cluster, "a")["message"] == "0/1 nodes are available: queue research not found."
    assert status(cluster, volcano=True)["phase"] == "Pending"
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"}}
    await cluster.api.create(VOLCANO_QUEUES, body)
    await cluster.settle()
    assert bound(cluster) == ["a"]


@pytest.mark.parametrize(
    ("volcano", "spec", "complaint"),
    [
        (False, {"minMember": 0}, "spec.minMember"),
        (False, {"minMember": "two"}, "spec.minMember"),
        (False, {"minResources": {"cpu": "much"}}, "spec.minResources.cpu"),
        (True, {"networkTopology": {"mode": "near"}}, "spec.networkTopology.mode"),
        (True, {"subGroupPolicy": [{}]}, "spec.subGroupPolicy[0].name"),
    ],
)
async def test_malformed_groups_are_refused(cluster: Stepper, volcano: bool, spec: JsonObject, complaint: str) -> None:
    await assert_refused(group(cluster, volcano=volcano, **spec), 422, complaint)
