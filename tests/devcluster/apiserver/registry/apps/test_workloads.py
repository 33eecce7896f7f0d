"""Deployments and ReplicaSets at the API: defaults, rules, generations, scale."""

from typing import Any

import pytest
from support.apiserver import assert_refused
from support.workloads import deployment, replicaset, template

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, PatchType, WriteOptions
from trainmaster.devcluster.apiserver.registry.generic.scale import Scaler
from trainmaster.devcluster.apiserver.resources import DEPLOYMENTS, REPLICA_SETS
from trainmaster.runtime.jsontree import JsonObject


async def made(api: Api, **spec: Any) -> JsonObject:
    return await api.create(DEPLOYMENTS, deployment(**spec), namespace="default")


async def test_a_deployment_gets_its_defaults(api: Api) -> None:
    body = deployment()
    del body["spec"]["replicas"]
    spec = (await api.create(DEPLOYMENTS, body, namespace="default"))["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


def rolling(**fields: Any) -> JsonObject:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": fields}}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"replicas": -1}, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        ({"selector": {}}, "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
        (
            {"template": template(labels={"app": "other"})},
            'labels: Invalid value: {"app":"other"}: `selector` does not match template `labels`',
        ),
        (
            {"template": {**template(), "spec": {**template()["spec"], "restartPolicy": "Never"}}},
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
        ),
        (
            {"template": {**template(), "spec": {**template()["spec"], "activeDeadlineSeconds": 1}}},
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
        ),
        (
            rolling(maxSurge=0, maxUnavailable=0),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            rolling(maxUnavailable="101%"),
            'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%',
        ),
        (rolling(maxSurge="many"), "a valid percent string must be a numeric string followed by an ending '%'"),
        (
            rolling(maxSurge=-1),
            "spec.strategy.rollingUpdate.maxSurge: Invalid value: -1: must be greater than or equal",
        ),
        (
            {"strategy": {"type": "Recreate", "rollingUpdate": {}}},
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            {"strategy": {"type": "Blue"}},
            'spec.strategy.type: Unsupported value: "Blue": supported values: "Recreate", "RollingUpdate"',
        ),
        (
            {"progressDeadlineSeconds": 5, "minReadySeconds": 5},
            "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused(api: Api, spec: JsonObject, problem: str) -> None:
    await assert_refused(made(api, **spec), 422, problem)


@pytest.mark.parametrize(("resource", "body"), [(DEPLOYMENTS, deployment()), (REPLICA_SETS, replicaset())])
async def test_the_selector_stays(api: Api, resource: Any, body: JsonObject) -> None:
    live = await api.create(resource, body, namespace="default")
    labels = {"app": "web", "tier": "front"}
    spec = {**live["spec"], "selector": {"matchLabels": labels}, "template": template(labels=labels)}
    with pytest.raises(StatusError, match=r"spec\.selector: Invalid value: .*: field is immutable"):
        await api.update(resource, {**live, "spec": spec})


async def test_a_change_of_spec_or_annotations_is_a_new_generation_of_a_deployment(api: Api) -> None:
    live = await made(api)
    assert live["metadata"]["generation"] == 1
    live = await api.update(DEPLOYMENTS, {**live, "metadata": {**live["metadata"], "annotations": {"a": "b"}}})
    assert live["metadata"]["generation"] == 2
    live = await api.update(DEPLOYMENTS, {**live, "metadata": {**live["metadata"], "labels": {"a": "b"}}})
    assert live["metadata"]["generation"] == 2
    live = await api.update(DEPLOYMENTS, {**live, "spec": {**live["spec"], "replicas": 5}})
    assert live["metadata"]["generation"] == 3


async def test_it_is_scaled_by_its_subresource(api: Api) -> None:
    live = await made(api)
    expressions = [{"key": "tier", "operator": "NotIn", "values": ["b", "a"]}]
    other = {**replicaset(selector={"matchLabels": {"app": "web"}, "matchExpressions": expressions})}
    await api.create(REPLICA_SETS, other, namespace="default")
    scaler = Scaler(api)
    scale = scaler.get(DEPLOYMENTS, "default", "web")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    assert scaler.get(REPLICA_SETS, "default", "web")["status"]["selector"] == "app=web,tier notin (a,b)"
    patch = {"spec": {"replicas": 7}}
    await scaler.patch(DEPLOYMENTS, "default", "web", patch, patch_type=PatchType.MERGE, options=WriteOptions())
    after = api.get(DEPLOYMENTS, "default", "web")
    assert after["spec"] == {**live["spec"], "replicas": 7}
    assert after["metadata"]["generation"] == 2
