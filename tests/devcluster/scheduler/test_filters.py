"""Whether a pod fits on a node, and what is said if not."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.scheduler.filters import filter_node, fit_error
from trainmaster.runtime.jsontree import JsonObject

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
