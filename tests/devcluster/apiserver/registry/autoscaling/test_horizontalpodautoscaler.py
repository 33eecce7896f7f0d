"""HorizontalPodAutoscalers at the API: what is filled in, what is refused, what is shown."""

from __future__ import annotations

from typing import Any

import pytest
from support.refusals import assert_refused

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.registry.metric_targets import metric_targets
from trainmaster.devcluster.apiserver.resources import HORIZONTAL_POD_AUTOSCALERS
from trainmaster.runtime.jsontree import JsonObject

TARGET = {"kind": "PyTorchJob", "name": "elastic", "apiVersion": "kubeflow.org/v1"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


def autoscaler(**spec: Any) -> JsonObject:
    whole = {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 3, **spec}
    present = {field: value for field, value in whole.items() if value is not None}
    metadata = {"name": "elastic", "namespace": "default"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": present}


async def made(api: Api, **spec: Any) -> JsonObject:
    return await api.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler(**spec))


async def test_what_is_left_open_is_filled_in(api: Api) -> None:
    created = await made(api, minReplicas=None, behavior={"scaleDown": {"selectPolicy": "Disabled"}})
    assert created["spec"]["minReplicas"] == 1
    assert created["spec"]["metrics"] == [CPU]
    whole = {"type": "Percent", "value": 100, "periodSeconds": 15}
    assert created["spec"]["behavior"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, whole],
        },
        "scaleDown": {"selectPolicy": "Disabled", "policies": [whole]},
    }
    assert created["status"] == {"currentMetrics": None, "desiredReplicas": 0}
    assert "generation" not in created["metadata"]


def metric(kind: str, **sources: Any) -> list[JsonObject]:
    return [{"type": kind, **sources}]


def resource(**target: Any) -> list[JsonObject]:
    return metric("Resource", resource={"name": "cpu", "target": {"type": "Utilization", **target}})


BOTH = {"averageUtilization": 80, "averageValue": "1"}
METRIC = {"metric": {"name": "queue"}, "target": {"type": "Value"}}


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        (
            {"scaleTargetRef": {}},
            ["spec.scaleTargetRef.kind: Required value", "spec.scaleTargetRef.name: Required value"],
        ),
        ({"scaleTargetRef": {**TARGET, "name": "a/b"}}, ["name: Invalid value: \"a/b\": may not contain '/'"]),
        (
            {"metrics": metric("Resource")},
            ["spec.metrics[0].resource: Required value: must populate information for the given metric source"],
        ),
        (
            {"metrics": [{**CPU, "pods": METRIC}]},
            ["spec.metrics[0].pods: Forbidden: must populate the given metric source only"],
        ),
        ({"metrics": resource()}, ["averageUtilization: Required value: must set either a target raw value or"]),
        ({"metrics": resource(**BOTH)}, ["averageValue: Forbidden: may not set both a target raw value and"]),
        ({"metrics": resource(averageUtilization=0)}, ["Invalid value: 0: must be greater than 0"]),
        ({"metrics": resource(averageValue="0")}, ['averageValue: Invalid value: "0": must be positive']),
        (
            {"metrics": resource(averageUtilization=1, type="Half")},
            ['target.type: Invalid value: "Half": must be either Utilization, Value, or AverageValue'],
        ),
        (
            {"metrics": metric("Pods", pods=METRIC)},
            ["pods.target.averageValue: Required value: must specify a positive target averageValue"],
        ),
        (
            {"metrics": metric("External", external=METRIC)},
            ["target.averageValue: Required value: must set either a target value for metric or a per-pod target"],
        ),
        (
            {"metrics": metric("Object", object=METRIC)},
            ["spec.metrics[0].object.describedObject.kind: Required value", "a target value or averageValue"],
        ),
        (
            {"metrics": metric("ContainerResource", containerResource=resource(averageUtilization=5)[0]["resource"])},
            ["containerResource.container: Required value: must specify a container"],
        ),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601, "selectPolicy": "Most", "policies": []}}},
            [
                "stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
                'selectPolicy: Unsupported value: "Most": supported values: "Disabled", "Max", "Min"',
                "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
            ],
        ),
        (
            {"behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 0, "periodSeconds": 1801}]}}},
            [
                "spec.behavior.scaleDown.policies[0].value: Invalid value: 0: must be greater than zero",
                "periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
            ],
        ),
    ],
)
async def test_what_cannot_work_is_refused(api: Api, spec: JsonObject, problems: list[str]) -> None:
    await assert_refused(made(api, **spec), 422, *problems)


async def test_spec_and_status_are_written_apart(api: Api) -> None:
    created = await made(api)
    changed = {**created, "spec": {**created["spec"], "maxReplicas": 9}, "status": {"desiredReplicas": 2}}
    by_spec = await api.update(HORIZONTAL_POD_AUTOSCALERS, changed)
    assert (by_spec["spec"]["maxReplicas"], by_spec["status"]["desiredReplicas"]) == (9, 0)
    status = {**by_spec, "spec": {}, "status": {"currentReplicas": 2, "desiredReplicas": 2}}
    by_status = await api.update(HORIZONTAL_POD_AUTOSCALERS, status, subresource="status")
    assert (by_status["spec"]["maxReplicas"], by_status["status"]["currentReplicas"]) == (9, 2)
    status = {**by_status, "status": {"desiredReplicas": -1}}
    with pytest.raises(StatusError, match=r"status\.desiredReplicas: Invalid value: -1"):
        await api.update(HORIZONTAL_POD_AUTOSCALERS, status, subresource="status")


@pytest.mark.parametrize(
    ("metrics", "measured", "text"),
    [
        ([], [], "<none>"),
        ([CPU], [], "cpu: <unknown>/80%"),
        ([CPU], [{"resource": {"current": {"averageUtilization": 12, "averageValue": "1"}}}], "cpu: 12%/80%"),
        (resource(averageValue="2"), [{"resource": {"current": {"averageValue": "500m"}}}], "cpu: 500m/2"),
        (metric("External", external={"target": {"averageValue": "5"}}), [], "<unknown>/5 (avg)"),
        (metric("Object", object={"target": {"value": "7"}}), [{"object": {"current": {"value": "3"}}}], "3/7"),
        ([CPU, CPU, CPU], [], "cpu: <unknown>/80%, cpu: <unknown>/80% + 1 more..."),
        (metric("Guess"), [], "<unknown type>"),
    ],
)
def test_the_targets_in_a_word(metrics: list[JsonObject], measured: list[JsonObject], text: str) -> None:
    assert metric_targets({"spec": {"metrics": metrics}, "status": {"currentMetrics": measured}}) == text
