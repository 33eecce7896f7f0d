"""PodGroups of Volcano in their queues: who makes the pods of a group may wait until it has left its queue."""

from __future__ import annotations

import random
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.devcluster.stepper import Stepper
from support.disk import BrittleStore
from support.workloads import GPU, add_node, bound

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import (
    EVENTS,
    PODS,
    PRIORITY_CLASSES,
    VOLCANO_POD_GROUPS,
    VOLCANO_QUEUES,
)
from trainmaster.devcluster.apiserver.storage import Event, ObjectKey
from trainmaster.devcluster.controllers.control_loop import ControlLoop, SingleLoopController
from trainmaster.devcluster.controllers.indexer import find
from trainmaster.devcluster.controllers.volcanoqueue import QueueController
from trainmaster.devcluster.crds.install import GANG_DEFINITIONS, install_definitions
from trainmaster.devcluster.scheduler.scheduler import Scheduler
from trainmaster.runtime.jsontree import JsonObject

VERSION = "scheduling.volcano.sh/v1beta1"


async def group(cluster: Stepper, name: str, *, members: int = 2, gpus: int = 0, **spec: Any) -> None:
    """What the training operator creates before any pod."""
    resources = {"minResources": {GPU: str(gpus)}} if gpus else {"minResources": {}}
    body = {"apiVersion": VERSION, "kind": "PodGroup", "metadata": {"name": name}}
    spec = {"minMember": members, "queue": "default", **resources, **spec}
    await cluster.api.create(VOLCANO_POD_GROUPS, {**body, "spec": spec}, namespace="default")
    await cluster.settle()


async def pods(cluster: Stepper, of: str, *, count: int = 2, gpus: int = 0) -> None:
    for index in range(count):
        container = {"name": "main", "image": "img", "resources": {"limits": {GPU: str(gpus)}}}
        metadata = {"name": f"{of}-{index}", "annotations": {"scheduling.k8s.io/group-name": of}}
        spec = {"containers": [container], "schedulerName": "volcano", "terminationGracePeriodSeconds": 0}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await cluster.api.create(PODS, body, namespace="default")
    await cluster.settle()


async def queue(cluster: Stepper, name: str, *, state: str = "", **capability: str) -> None:
    spec = {"capability": {GPU: capability["gpus"]}} if capability else {}
    body: JsonObject = {"apiVersion": VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    await cluster.api.create(VOLCANO_QUEUES, body)
    await cluster.settle()
    if state:
        await set_state(cluster, name, state)


async def set_state(cluster: Stepper, name: str, state: str) -> None:
    known = cluster.api.get(VOLCANO_QUEUES, None, name)
    changed = {**known, "status": {**known["status"], "state": state}}
    await cluster.api.update(VOLCANO_QUEUES, changed, subresource="status")
    await cluster.settle()


def phase(cluster: Stepper, name: str) -> str:
    found: str = cluster.api.get(VOLCANO_POD_GROUPS, "default", name)["status"]["phase"]
    return found


def message(cluster: Stepper, name: str, kind: str = "Unschedulable") -> str:
    conditions = cluster.api.get(VOLCANO_POD_GROUPS, "default", name)["status"].get("conditions", [])
    return next((each["message"] for each in conditions if each["type"] == kind and each["status"] == "True"), "")


async def test_a_group_is_pending_then_inqueue_and_runs_when_its_pods_are_bound(cluster: Stepper) -> None:
    seen: list[str] = []

    def observe(event: Event) -> None:
        seen.append(event.record.object.get("status", {}).get("phase", ""))

    cluster.api.store.subscribe(VOLCANO_POD_GROUPS, observe)
    await group(cluster, "train", gpus=4)
    assert list(dict.fromkeys(seen)) == ["", "Pending", "Inqueue"], "before there is any pod"
    assert message(cluster, "train") == "2/0 tasks in gang unschedulable: pod group is not ready, 2 minAvailable"
    await pods(cluster, "train", gpus=2)
    assert bound(cluster) == ["train-0", "train-1"]
    assert list(dict.fromkeys(seen)) == ["", "Pending", "Inqueue", "Running"]
    await cluster.set_pods("Running")
    assert cluster.api.get(VOLCANO_POD_GROUPS, "default", "train")["status"]["running"] == 2
    await cluster.set_pods("Succeeded")
    assert list(dict.fromkeys(seen))[-1] == "Completed"


async def test_pods_that_are_there_already_are_bound_after_the_group_has_left_its_queue(cluster: Stepper) -> None:
    order: list[str] = []

    def observe(event: Event) -> None:
        obj = event.record.object
        order.append(obj.get("status", {}).get("phase", "") if obj["kind"] == "PodGroup" else obj["spec"]["nodeName"])

    await pods(cluster, "train", gpus=1)
    cluster.api.store.subscribe(VOLCANO_POD_GROUPS, observe)
    cluster.api.store.subscribe(
        PODS, lambda event: observe(event) if event.record.object["spec"].get("nodeName") else None
    )
    await group(cluster, "train", gpus=2)
    assert list(dict.fromkeys(order)) == ["", "Pending", "Inqueue", "laptop", "Running"]


async def test_groups_come_in_as_far_as_all_of_them_can_start(cluster: Stepper) -> None:
    """The first has no pods yet, and its share is not given to another one meanwhile."""
    for name in ("first", "second", "small"):
        await group(cluster, name, gpus=1 if name == "small" else 3)
    assert [phase(cluster, name) for name in ("first", "second", "small")] == ["Inqueue", "Pending", "Inqueue"]
    text = "2/0 tasks in gang unschedulable: pod group is not ready, 2 minAvailable; resource in cluster is overused"
    assert message(cluster, "second") == text
    told = [
        (each["type"], each["message"])
        for each in cluster.objects(EVENTS)
        if each["involvedObject"]["name"] == "second" and each["reason"] == "Unschedulable"
    ]
    assert sorted(told) == [("Normal", "resource in cluster is overused"), ("Warning", text)]
    await pods(cluster, "first", count=1, gpus=2)
    assert phase(cluster, "second") == "Pending"
    await cluster.delete(VOLCANO_POD_GROUPS, "first")
    assert phase(cluster, "second") == "Inqueue"


async def test_a_group_without_pods_comes_in_when_others_end(cluster: Stepper) -> None:
    await group(cluster, "first", gpus=4)
    await pods(cluster, "first", gpus=2)
    await group(cluster, "second", gpus=4)
    assert (phase(cluster, "first"), phase(cluster, "second")) == ("Running", "Pending")
    await cluster.set_pods("Succeeded")
    assert (phase(cluster, "first"), phase(cluster, "second")) == ("Completed", "Inqueue")


async def test_the_default_queue_exists_and_counts_its_groups(cluster: Stepper) -> None:
    await group(cluster, "train", members=1)
    queue = cluster.api.get(VOLCANO_QUEUES, None, "default")
    assert (queue["status"]["state"], queue["status"]["inqueue"]) == ("Open", 1)
    await cluster.delete(VOLCANO_POD_GROUPS, "train")
    assert cluster.api.get(VOLCANO_QUEUES, None, "default")["status"]["inqueue"] == 0


async def test_a_queue_lets_in_what_its_capability_holds(cluster: Stepper) -> None:
    await queue(cluster, "research", gpus="2")
    await group(cluster, "first", gpus=2, queue="research")
    await group(cluster, "second", gpus=1, queue="research")
    await group(cluster, "elsewhere", gpus=1)
    assert [phase(cluster, name) for name in ("first", "second", "elsewhere")] == ["Inqueue", "Pending", "Inqueue"]
    assert message(cluster, "second").endswith("; queue resource quota insufficient")
    known = cluster.api.get(VOLCANO_QUEUES, None, "research")
    await cluster.api.update(VOLCANO_QUEUES, {**known, "spec": {"capability": {GPU: "3"}}})
    await cluster.settle()
    assert phase(cluster, "second") == "Inqueue"


async def test_more_pods_than_needed_stay_within_the_capability(cluster: Stepper) -> None:
    await queue(cluster, "research", gpus="3")
    await group(cluster, "train", gpus=2, queue="research")
    await pods(cluster, "train", count=4, gpus=1)
    assert bound(cluster) == ["train-0", "train-1", "train-2"]
    (waiting,) = [
        each["message"]
        for each in cluster.api.get(PODS, "default", "train-3")["status"]["conditions"]
        if each["type"] == "PodScheduled"
    ]
    assert waiting == (f"0/1 nodes are available: queue resource quota insufficient: insufficient {GPU}.")


async def test_a_closed_queue_lets_nobody_out(cluster: Stepper) -> None:
    await queue(cluster, "research", state="Closed")
    await group(cluster, "train", gpus=1, queue="research")
    await pods(cluster, "train")
    assert (phase(cluster, "train"), bound(cluster)) == ("Pending", [])
    assert message(cluster, "train").endswith("queue research is Closed")
    await set_state(cluster, "research", "Open")
    assert (phase(cluster, "train"), bound(cluster)) == ("Running", ["train-0", "train-1"])


async def test_the_group_of_the_higher_class_comes_in_first(cluster: Stepper) -> None:
    for name, value in (("low", 1), ("high", 100)):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await cluster.api.create(PRIORITY_CLASSES, {**body, "value": value})
    await group(cluster, "first", gpus=4)
    for name in ("low", "none", "high"):
        await group(cluster, name, gpus=4, priorityClassName=name)
    await cluster.delete(VOLCANO_POD_GROUPS, "first")
    phases = {name: phase(cluster, name) for name in ("low", "none", "high")}
    assert phases == {"low": "Pending", "none": "Pending", "high": "Inqueue"}


async def test_a_group_whose_pods_are_all_lost_queues_again(cluster: Stepper) -> None:
    await group(cluster, "train", gpus=4)
    await pods(cluster, "train", gpus=2)
    await group(cluster, "other", gpus=4)
    for index in range(2):
        await cluster.set_pod(cluster.api.get(PODS, "default", f"train-{index}"), "Failed")
    assert {phase(cluster, "train"), phase(cluster, "other")} == {"Pending", "Inqueue"}


async def test_an_amount_that_is_none_is_refused(cluster: Stepper) -> None:
    with pytest.raises(StatusError, match=r"spec\.capability\.nvidia\.com/gpu"):
        await queue(cluster, "research", gpus="many")


def pod_of(group: JsonObject, index: int) -> JsonObject:
    container = {"name": "main", "image": "img", "resources": {"limits": {GPU: "1"}}}
    name = group["metadata"]["name"]
    metadata = {"name": f"{name}-{index}", "annotations": {"scheduling.k8s.io/group-name": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


class Operator(SingleLoopController):
    """Makes the three pods of each group that has left its queue, as the training operator does."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._loop = ControlLoop("operator", self._reconcile, api=api)
        self._loop.watch_keys(VOLCANO_POD_GROUPS)

    async def _reconcile(self, key: ObjectKey) -> None:
        group = find(self._api, key)
        if group is None or group.get("status", {}).get("phase", "Pending") == "Pending":
            return
        for index in range(3):
            pod = pod_of(group, index)
            pod["spec"]["schedulerName"] = "volcano"
            if find(self._api, ObjectKey(PODS, key.namespace, pod["metadata"]["name"])) is None:
                await self._api.create(PODS, pod, namespace=key.namespace)


@pytest.mark.parametrize("seed", range(5))
async def test_the_end_is_the_same_whatever_fails_on_the_way(seed: int) -> None:
    """Writes fail and processes are killed at random; there is room for one of the two groups at a time."""
    store = BrittleStore(random.Random(seed))
    cluster = Stepper(store=store)
    await cluster.namespace("default")
    await install_definitions(cluster.api, GANG_DEFINITIONS)
    await add_node(cluster, "laptop", {GPU: "4"})

    def start() -> None:
        cluster.start(Scheduler(cluster.api), QueueController(cluster.api), Operator(cluster.api))

    async def unsteady() -> None:
        store.failure_rate = 0.3
        for _ in range(3):
            await cluster.advance(20)
            cluster.stop()
            start()
        store.failure_rate = 0.0
        await cluster.advance(60)

    with capture_logs():  # hundreds of failures, and all of them are meant
        start()
        for name in ("first", "second"):
            await group(cluster, name, members=3, gpus=3)
        await unsteady()
        assert (phase(cluster, "first"), phase(cluster, "second")) == ("Running", "Pending")
        assert bound(cluster) == ["first-0", "first-1", "first-2"]
        assert len(cluster.objects(PODS)) == 3
        await cluster.set_pods("Succeeded")
        await unsteady()
        assert (phase(cluster, "first"), phase(cluster, "second")) == ("Completed", "Running")
        assert len(bound(cluster)) == 6
        cluster.stop()
        before = cluster.api.revision
        start()
        await cluster.settle()
        assert cluster.api.revision == before, "a restart has nothing to write"
