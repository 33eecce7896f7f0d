"""HorizontalPodAutoscalers: defaults, validation, columns. Whether something scales by them is not looked at."""

from __future__ import annotations

from typing import Any

import pytest
from support.conformance import Client, Collection

from trainmaster.runtime.jsontree import JsonObject

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TARGET = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "elastic"}


@pytest.fixture
def autoscalers(client: Client, namespace: str) -> Collection:
    return client.collection("autoscaling/v2", "horizontalpodautoscalers", namespace)


def autoscaler(**spec: Any) -> JsonObject:
    return {"metadata": {"name": "a"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec}}


async def test_an_autoscaler_gets_its_defaults(autoscalers: Collection) -> None:
    spec = (await autoscalers.made(autoscaler()))["spec"]
    assert spec["minReplicas"] == 1
    target = {"type": "Utilization", "averageUtilization": 80}
    assert spec["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    assert "behavior" not in spec


async def test_an_unknown_field_is_refused_where_asked_for(autoscalers: Collection) -> None:
    answer = await autoscalers.create(autoscaler(replicas=3), fieldValidation="Strict")
    assert 'unknown field "spec.replicas"' in answer.refused(400, "BadRequest")["message"]


async def test_an_autoscaler_shows_what_it_scales(autoscalers: Collection) -> None:
    await autoscalers.made(autoscaler(minReplicas=2))
    table = (await autoscalers.list(accept=TABLE)).ok(200)
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns == ["Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"]
    row = dict(zip(columns, table["rows"][0]["cells"], strict=True))
    assert (row["Reference"], row["MinPods"], row["MaxPods"]) == ("PyTorchJob/elastic", "2", 3)
