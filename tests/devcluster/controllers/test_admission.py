"""What becomes of pods on their way in: priority, runtime classes, limits."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.admission.plugins.ordered_plugins import register_plugins
from trainmaster.devcluster.apiserver.admission.plugins.priority import add_system_priority_classes
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import (
    LIMIT_RANGES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
)
from trainmaster.devcluster.testing.stepper import Stepper
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resource_requirements import pod_requests


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    register_plugins(cluster.api)
    await add_system_priority_classes(cluster.api)
    return cluster


async def pod(cluster: Stepper, name: str = "p", *, resources: JsonObject | None = None, **spec: Any) -> JsonObject:
    container = {"name": "main", "image": "img", "resources": resources or {}}
    body = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    return await cluster.api.create(PODS, body, namespace="default")


async def priority_class(cluster: Stepper, name: str, value: int, **fields: Any) -> None:
    await cluster.api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, **fields})


async def limits(cluster: Stepper, **item: Any) -> JsonObject:
    body = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Container", **item}]}}
    return await cluster.api.create(LIMIT_RANGES, body, namespace="default")


def refusal(caught: pytest.ExceptionInfo[StatusError]) -> tuple[int, str]:
    return caught.value.code, caught.value.message


async def test_a_class_becomes_a_priority(cluster: Stepper) -> None:
    await priority_class(cluster, "high", 100, preemptionPolicy="Never")
    created = await pod(cluster, priorityClassName="high")
    assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (100, "Never")
    # Clients send what they first wrote; what was resolved stays.
    spec = {key: value for key, value in created["spec"].items() if key not in ("priority", "preemptionPolicy")}
    updated = await cluster.api.update(PODS, {**created, "spec": spec})
    assert updated["spec"] == created["spec"]


async def test_without_a_class_the_default_counts(cluster: Stepper) -> None:
    assert (await pod(cluster, "a"))["spec"]["priority"] == 0
    await priority_class(cluster, "usual", 7, globalDefault=True)
    created = await pod(cluster, "b")
    assert (created["spec"]["priority"], created["spec"]["priorityClassName"]) == (7, "usual")


async def test_an_unknown_class_is_refused(cluster: Stepper) -> None:
    with pytest.raises(StatusError) as caught:
        await pod(cluster, priorityClassName="high")
    assert refusal(caught) == (403, 'pods "p" is forbidden: no PriorityClass with name high was found')


async def test_nobody_gives_himself_a_priority(cluster: Stepper) -> None:
    with pytest.raises(StatusError) as caught:
        await pod(cluster, priority=10)
    assert refusal(caught) == (
        403,
        (
            'pods "p" is forbidden: the integer value of priority (10) must not be provided in pod spec; '
            "priority admission controller computed 0 from the given PriorityClass name"
        ),
    )


async def test_rules_of_priority_classes(cluster: Stepper) -> None:
    assert (await pod(cluster, priorityClassName="system-node-critical"))["spec"]["priority"] == 2_000_001_000
    await priority_class(cluster, "usual", 7, globalDefault=True)
    with pytest.raises(StatusError, match="PriorityClass usual is already marked as default"):
        await priority_class(cluster, "other", 8, globalDefault=True)
    with pytest.raises(StatusError, match="maximum allowed value of a user defined priority is 1000000000"):
        await priority_class(cluster, "huge", 1_000_000_001)
    with pytest.raises(StatusError, match="system-mine is not a known system priority class"):
        await priority_class(cluster, "system-mine", 1)
    await add_system_priority_classes(cluster.api)  # a restart changes nothing


async def test_a_runtime_class_adds_what_its_pods_need(cluster: Stepper) -> None:
    toleration = {"key": "sandbox", "operator": "Exists"}
    body = {
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"sandbox": "yes"}, "tolerations": [toleration]},
    }
    await cluster.api.create(RUNTIME_CLASSES, body)
    spec = (await pod(cluster, runtimeClassName="kata", resources={"requests": {"cpu": "1"}}))["spec"]
    assert spec["overhead"] == {"cpu": "250m"}
    assert str(pod_requests(spec)["cpu"]) == "1250m"
    assert spec["nodeSelector"] == {"sandbox": "yes"}
    assert toleration in spec["tolerations"]
    with pytest.raises(StatusError, match=r"conflict: runtimeClass\.scheduling\.nodeSelector\[sandbox\] = yes"):
        await pod(cluster, "q", runtimeClassName="kata", nodeSelector={"sandbox": "no"})
    with pytest.raises(StatusError, match="Pod's Overhead doesn't match RuntimeClass's defined Overhead"):
        await pod(cluster, "q", runtimeClassName="kata", overhead={"cpu": "1"})


async def test_unknown_runtime_classes_are_refused(cluster: Stepper) -> None:
    with pytest.raises(StatusError) as caught:
        await pod(cluster, runtimeClassName="kata")
    assert refusal(caught) == (403, 'pods "p" is forbidden: pod rejected: RuntimeClass "kata" not found')
    with pytest.raises(StatusError, match="Pod Overhead set without corresponding RuntimeClass defined Overhead"):
        await pod(cluster, overhead={"cpu": "1"})


async def test_limits_fill_in_what_containers_leave_out(cluster: Stepper) -> None:
    await limits(cluster, default={"cpu": "2", "memory": "1Gi"}, defaultRequest={"cpu": "500m"})
    created = await pod(cluster, resources={"limits": {"memory": "2Gi"}})
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
        (
            {"max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
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
        (
            {"type": "Pod", "max": {"cpu": "1"}},
            {},
            "maximum cpu usage per Pod is 1.  No limit is specified",
        ),
        (
            {"type": "Pod", "min": {"cpu": "1"}},
            {"requests": {"memory": "1Gi"}},
            "minimum cpu usage per Pod is 1.  No request is specified",
        ),
    ],
)
async def test_pods_out_of_bounds_are_refused(
    cluster: Stepper, item: JsonObject, resources: JsonObject, complaint: str
) -> None:
    await limits(cluster, **item)
    with pytest.raises(StatusError) as caught:
        await pod(cluster, resources=resources)
    assert refusal(caught) == (403, f'pods "p" is forbidden: {complaint}')


async def test_claims_out_of_bounds_are_refused(cluster: Stepper) -> None:
    await limits(cluster, type="PersistentVolumeClaim", max={"storage": "1Gi"})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    with pytest.raises(StatusError) as caught:
        await cluster.api.create(
            PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data"}, "spec": spec}, namespace="default"
        )
    text = "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi"
    assert refusal(caught) == (403, f'persistentvolumeclaims "data" is forbidden: {text}')


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
    with pytest.raises(StatusError) as caught:
        await limits(cluster, **item)
    assert caught.value.code == 422
    assert complaint in caught.value.message
