"""Taints with the effect NoExecute, in virtual time."""

from typing import Any

import pytest
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import NODES, PODS
from trainmaster.devcluster.controllers.tainteviction import TaintEvictionController, tolerated_for
from trainmaster.runtime.jsontree import JsonObject

DRAINED = {"key": "maintenance", "effect": "NoExecute"}


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    await cluster.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    cluster.start(TaintEvictionController(cluster.api))
    return cluster


async def create(cluster: Stepper, name: str, *tolerations: JsonObject) -> None:
    spec: dict[str, Any] = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "tolerations": tolerations}
    spec["tolerations"] = list(tolerations)
    await cluster.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace="default")
    await cluster.settle()


async def taint(cluster: Stepper, *taints: JsonObject) -> None:
    node = cluster.api.get(NODES, None, "n")
    await cluster.api.update(NODES, {**node, "spec": {"taints": list(taints)}})
    await cluster.settle()


def leaving(cluster: Stepper) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in cluster.objects(PODS) if "deletionTimestamp" in pod["metadata"])


async def test_pods_leave_unless_they_tolerate_the_taint(cluster: Stepper) -> None:
    await create(cluster, "plain")
    await create(cluster, "tolerant", {"operator": "Exists"})
    await create(cluster, "patient", {**DRAINED, "operator": "Exists", "tolerationSeconds": 60})
    await taint(cluster, {"key": "dedicated", "effect": "NoSchedule"})
    assert leaving(cluster) == []
    await taint(cluster, DRAINED)
    assert leaving(cluster) == ["plain"]
    condition = next(
        each
        for each in cluster.api.get(PODS, "default", "plain")["status"]["conditions"]
        if each["type"] == "DisruptionTarget"
    )
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByTaintManager")
    assert condition["message"] == "Taint manager: deleting due to NoExecute taint"
    assert cluster.reasons("plain") == ["TaintManagerEviction"]
    await cluster.advance(59)
    assert leaving(cluster) == ["plain"]
    await cluster.advance(2)
    assert leaving(cluster) == ["patient", "plain"]


async def test_a_taint_that_is_removed_in_time_lets_the_pod_stay(cluster: Stepper) -> None:
    await create(cluster, "patient", {**DRAINED, "operator": "Exists", "tolerationSeconds": 60})
    await taint(cluster, DRAINED)
    await cluster.advance(50)
    await taint(cluster)
    await cluster.advance(50)
    await taint(cluster, DRAINED)
    await cluster.advance(50)
    assert leaving(cluster) == [], "the time begins anew with the taint"
    await cluster.advance(11)
    assert leaving(cluster) == ["patient"]


async def test_a_pod_that_comes_to_a_tainted_node_leaves_at_once(cluster: Stepper) -> None:
    await taint(cluster, DRAINED)
    await create(cluster, "late")
    assert leaving(cluster) == ["late"]


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0.0),
        ([{"key": "k", "value": "other", "effect": "NoExecute"}], 0.0),
        ([{"key": "k", "value": "v"}], None),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 30}, {"key": "k", "value": "v"}], 30.0),
        ([{"operator": "Exists", "tolerationSeconds": -5}], 0.0),
    ],
)
def test_how_long_a_taint_is_tolerated(tolerations: list[JsonObject], seconds: float | None) -> None:
    assert tolerated_for(tolerations, {"key": "k", "value": "v", "effect": "NoExecute"}) == seconds


async def test_a_node_that_does_not_answer_is_waited_for(cluster: Stepper) -> None:
    """Every pod tolerates that for five minutes unless it says otherwise, by the defaults of the API server."""
    await create(cluster, "plain")
    await taint(cluster, {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"})
    await cluster.advance(299)
    assert leaving(cluster) == []
    await cluster.advance(2)
    assert leaving(cluster) == ["plain"]
