"""The disruption controller against the API, with hand-set pod statuses."""

from __future__ import annotations

import pytest
from support.devcluster.stepper import Stepper
from support.workloads import LABELS, deployment, make_ready, template

from trainmaster.devcluster.apiserver.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS
from trainmaster.devcluster.controllers.deployment.controller import DeploymentController
from trainmaster.devcluster.controllers.disruption.controller import DisruptionController
from trainmaster.devcluster.controllers.replicaset.controller import ReplicaSetController
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
def cluster(cluster: Stepper) -> Stepper:
    cluster.start(
        DisruptionController(cluster.api), DeploymentController(cluster.api), ReplicaSetController(cluster.api)
    )
    return cluster


async def budget(cluster: Stepper, **spec: object) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": LABELS}, **spec},
    }
    await cluster.api.create(POD_DISRUPTION_BUDGETS, body, namespace="default")
    await cluster.settle()


def status(cluster: Stepper) -> JsonObject:
    found: JsonObject = cluster.api.get(POD_DISRUPTION_BUDGETS, "default", "web")["status"]
    return found


@pytest.mark.parametrize(
    ("spec", "desired", "allowed"),
    [
        ({"minAvailable": 1}, 1, 2),
        ({"minAvailable": "50%"}, 2, 1),
        ({"maxUnavailable": 1}, 2, 1),
        ({"maxUnavailable": "100%"}, 0, 3),
    ],
)
async def test_a_budget_tells_how_many_pods_may_go(
    cluster: Stepper, spec: JsonObject, desired: int, allowed: int
) -> None:
    await cluster.api.create(DEPLOYMENTS, deployment(), namespace="default")
    await budget(cluster, **spec)
    assert status(cluster)["disruptionsAllowed"] == 0
    assert status(cluster)["conditions"][0]["reason"] == ("InsufficientPods")
    for pod in cluster.objects(PODS):
        await make_ready(cluster, pod)
    now = status(cluster)
    assert (now["expectedPods"], now["currentHealthy"]) == (3, 3)
    assert (now["desiredHealthy"], now["disruptionsAllowed"]) == (desired, allowed)
    assert now["conditions"][0]["reason"] == "SufficientPods"


async def test_how_many_pods_there_should_be_is_unknown_of_pods_that_nobody_keeps(cluster: Stepper) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone", "labels": LABELS}, **template()}
    pod["metadata"] = {"name": "alone", "labels": LABELS}
    await cluster.api.create(PODS, pod, namespace="default")
    await budget(cluster, maxUnavailable=1)
    assert status(cluster)["disruptionsAllowed"] == 0
    assert status(cluster)["conditions"][0]["reason"] == "SyncFailed"
    assert status(cluster)["conditions"][0]["message"] == 'found no controllers for pod "alone"'
