"""The ReplicaSet controller against the API, with hand-set pod statuses."""

from typing import Any

import pytest
from support.devcluster.stepper import Stepper
from support.workloads import LABELS, make_ready, replicaset, template, terminating

from trainmaster.devcluster.apiserver.resources import PODS, PRIORITY_CLASSES, REPLICA_SETS
from trainmaster.devcluster.controllers.replicaset import ReplicaSetController
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
def cluster(cluster: Stepper) -> Stepper:
    cluster.start(ReplicaSetController(cluster.api))
    return cluster


async def create(cluster: Stepper, **spec: Any) -> None:
    await cluster.api.create(REPLICA_SETS, replicaset(**spec), namespace="default")
    await cluster.settle()


def get(cluster: Stepper) -> JsonObject:
    return cluster.api.get(REPLICA_SETS, "default", "web")


async def resize(cluster: Stepper, replicas: int) -> None:
    live = get(cluster)
    await cluster.api.update(REPLICA_SETS, {**live, "spec": {**live["spec"], "replicas": replicas}})
    await cluster.settle()


async def test_it_makes_pods_of_the_template_and_owns_them(cluster: Stepper) -> None:
    await create(cluster, replicas=2)
    first, second = cluster.objects(PODS)
    assert first["metadata"]["name"].startswith("web-")
    assert first["metadata"]["labels"] == LABELS
    assert [each["kind"] for each in second["metadata"]["ownerReferences"]] == ["ReplicaSet"]
    assert get(cluster)["status"]["replicas"] == 2
    assert "SuccessfulCreate" in cluster.reasons("web")


async def test_a_pod_that_goes_or_fails_is_replaced(cluster: Stepper) -> None:
    await create(cluster, replicas=2)
    first, second = cluster.objects(PODS)
    await cluster.end_pod(first)
    await cluster.set_pod(second, "Failed")
    assert len([pod for pod in cluster.objects(PODS) if pod["status"]["phase"] == "Pending"]) == 2
    assert get(cluster)["status"]["replicas"] == 2


async def test_those_go_first_that_are_worth_least(cluster: Stepper) -> None:
    await create(cluster, replicas=3)
    ready, running, pending = cluster.objects(PODS)
    await make_ready(cluster, ready)
    await cluster.set_pod(running, "Pending")
    await cluster.set_pod(ready, "Running")
    await resize(cluster, 1)
    left = [pod for pod in cluster.objects(PODS) if pod not in terminating(cluster)]
    assert [pod["metadata"]["name"] for pod in left] == [ready["metadata"]["name"]]
    assert pending["metadata"]["name"] not in [pod["metadata"]["name"] for pod in left]
    assert "SuccessfulDelete" in cluster.reasons("web")


async def test_a_pod_with_a_lower_deletion_cost_goes_first(cluster: Stepper) -> None:
    await create(cluster, replicas=2)
    cheap, dear = cluster.objects(PODS)
    for pod, cost in ((cheap, "-5"), (dear, "5")):
        live = cluster.api.get(PODS, "default", pod["metadata"]["name"])
        annotated = {**live["metadata"], "annotations": {"controller.kubernetes.io/pod-deletion-cost": cost}}
        await cluster.api.update(PODS, {**live, "metadata": annotated})
    await resize(cluster, 1)
    assert [pod["metadata"]["name"] for pod in cluster.objects(PODS)] == [dear["metadata"]["name"]]


async def test_a_pod_is_available_when_it_was_ready_for_long_enough(cluster: Stepper) -> None:
    await create(cluster, replicas=1, minReadySeconds=10)
    await make_ready(cluster, cluster.objects(PODS)[0])
    assert get(cluster)["status"]["readyReplicas"] == 1
    assert "availableReplicas" not in get(cluster)["status"]
    await cluster.advance(10)
    assert get(cluster)["status"]["availableReplicas"] == 1


async def test_it_adopts_what_its_selector_finds_and_releases_what_it_does_not(cluster: Stepper) -> None:
    orphan = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orphan", "labels": LABELS}}
    await cluster.api.create(PODS, {**orphan, "spec": template()["spec"]}, namespace="default")
    await create(cluster, replicas=1)
    (adopted,) = cluster.objects(PODS)
    assert adopted["metadata"]["ownerReferences"][0]["name"] == "web"
    await cluster.api.update(PODS, {**adopted, "metadata": {**adopted["metadata"], "labels": {"app": "other"}}})
    await cluster.settle()
    released, made = cluster.objects(PODS)
    assert "ownerReferences" not in released["metadata"]
    assert made["metadata"]["ownerReferences"][0]["name"] == "web"


async def test_a_refusal_is_told_and_tried_again(cluster: Stepper) -> None:
    from trainmaster.devcluster.apiserver.bootstrap import register_plugins  # noqa: PLC0415 - for this test alone

    register_plugins(cluster.api)
    important = template()
    important["spec"]["priorityClassName"] = "high"
    await cluster.api.create(REPLICA_SETS, replicaset(replicas=1, template=important), namespace="default")
    for loop in cluster._controllers[0].loops:
        await loop.run_ready()
    (condition,) = get(cluster)["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("ReplicaFailure", "True", "FailedCreate")
    assert "no PriorityClass with name high was found" in condition["message"]
    await cluster.api.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1})
    await cluster.advance(60)
    assert len(cluster.objects(PODS)) == 1
    assert "conditions" not in get(cluster)["status"]
