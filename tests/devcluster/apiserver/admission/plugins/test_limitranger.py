"""The LimitRanger plugin: defaults and bounds of containers, pods and claims."""

from typing import Any

import pytest
from support.apiserver import assert_refused, create_pod, refusal
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.resources import LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS
from trainmaster.runtime.jsontree import JsonObject


async def limits(cluster: Stepper, **item: Any) -> JsonObject:
    body = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Container", **item}]}}
    return await cluster.api.create(LIMIT_RANGES, body, namespace="default")


async def test_limits_fill_in_what_containers_leave_out(cluster: Stepper) -> None:
    await limits(cluster, default={"cpu": "2", "memory": "1Gi"}, defaultRequest={"cpu": "500m"})
    created = await create_pod(cluster, resources={"limits": {"memory": "2Gi"}})
    assert created["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "2Gi"},
        "requests": {"cpu": "500m", "memory": "2Gi"},
    }
    assert created["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container main; cpu limit for container main"
    )


async def test_defaults_of_limits_follow_from_each_other(cluster: Stepper) -> None:
    item = (await limits(cluster, max={"cpu": "2"}, min={"memory": "1Gi"}))["spec"]["limits"][0]
    assert (item["default"], item["defaultRequest"]) == ({"cpu": "2"}, {"cpu": "2", "memory": "1Gi"})


@pytest.mark.parametrize(
    ("item", "resources", "complaint"),
    [
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "maximum cpu usage per Container is 1, but limit is 2"),
        (
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "500m"}},
            "minimum cpu usage per Container is 1, but request is 500m",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
        ),
        ({"type": "Pod", "max": {"cpu": "1"}}, {}, "maximum cpu usage per Pod is 1.  No limit is specified"),
        (
            {"type": "Pod", "min": {"cpu": "1"}},
            {"requests": {"memory": "1Gi"}},
            "minimum cpu usage per Pod is 1.  No request is specified",
        ),
    ],
)
async def test_bounds_of_pods_hold(cluster: Stepper, item: JsonObject, resources: JsonObject, complaint: str) -> None:
    await limits(cluster, **item)
    assert await refusal(create_pod(cluster, resources=resources)) == (403, f'pods "p" is forbidden: {complaint}')


async def test_claims_out_of_bounds_are_refused(cluster: Stepper) -> None:
    await limits(cluster, type="PersistentVolumeClaim", max={"storage": "1Gi"})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    text = "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
    assert await refusal(
        cluster.api.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data"}, "spec": spec}, namespace="default")
    ) == (403, f'persistentvolumeclaims "data" is forbidden: {text}')


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        (
            {"min": {"cpu": "2"}, "max": {"cpu": "1"}},
            'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater',
        ),
        ({"type": "Pod", "default": {"cpu": "1"}}, "spec.limits[0].default: Forbidden: may not be specified"),
        ({"max": {"cpu": "-1"}}, 'spec.limits[0].max[cpu]: Invalid value: "-1"'),
        ({"maxLimitRequestRatio": {"cpu": "500m"}}, "ratio 500m is less than 1"),
    ],
)
async def test_senseless_limits_are_refused(cluster: Stepper, item: JsonObject, complaint: str) -> None:
    await assert_refused(limits(cluster, **item), 422, complaint)
