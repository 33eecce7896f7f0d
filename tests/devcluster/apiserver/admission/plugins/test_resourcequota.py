"""Resource quotas: what is refused, in the words of kube-apiserver, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest
from support.apiserver import assert_refused
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.admission.plugins.resourcequota import quota_check, usage
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import WriteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, PODS, RESOURCE_QUOTAS
from trainmaster.devcluster.controllers.resourcequota.controller import ResourceQuotaController
from trainmaster.runtime.jsontree import JsonObject


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    cluster.api.limit_by(quota_check(cluster.store))
    cluster.start(ResourceQuotaController(cluster.api))
    return cluster


async def quota(cluster: Stepper, **hard: str) -> None:
    names = {name.replace("__", "/").replace("_", "."): value for name, value in hard.items()}
    body = {"metadata": {"name": "small"}, "spec": {"hard": names}}
    await cluster.api.create(RESOURCE_QUOTAS, body, namespace="default")
    await cluster.settle()


def pod(name: str, *, init: JsonObject | None = None, **resources: Any) -> JsonObject:
    containers = [{"name": "node", "image": "i", "resources": resources}]
    inits = [{"name": "fetch", "image": "i", "resources": init}] if init is not None else []
    return {"metadata": {"name": name}, "spec": {"containers": containers, "initContainers": inits}}


async def refusal(cluster: Stepper, obj: JsonObject, *, dry_run: bool = False) -> str:
    with pytest.raises(StatusError) as caught:
        await cluster.api.create(PODS, obj, namespace="default", options=WriteOptions(dry_run=dry_run))
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    return caught.value.message


async def test_no_more_pods_than_allowed_and_ended_ones_do_not_count(cluster: Stepper) -> None:
    await quota(cluster, pods="1")
    first = await cluster.api.create(PODS, pod("a"), namespace="default")
    text = 'pods "b" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'
    assert await refusal(cluster, pod("b")) == text
    assert await refusal(cluster, pod("b"), dry_run=True) == text
    await cluster.set_pod(first, "Succeeded")
    await cluster.api.create(PODS, pod("b"), namespace="default")


async def test_requests_and_limits_are_added_up(cluster: Stepper) -> None:
    await quota(cluster, requests_cpu="3", limits_memory="1Gi")
    resources = {"requests": {"cpu": "2"}, "limits": {"memory": "256Mi"}}
    await cluster.api.create(PODS, pod("a", init=resources, **resources), namespace="default")
    assert await refusal(cluster, pod("b", **resources)) == (
        'pods "b" is forbidden: exceeded quota: small, requested: requests.cpu=2, used: requests.cpu=2, '
        "limited: requests.cpu=3"
    )
    await cluster.settle()
    status = cluster.api.get(RESOURCE_QUOTAS, "default", "small")["status"]
    assert status == {
        "hard": {"requests.cpu": "3", "limits.memory": "1Gi"},
        "used": {"requests.cpu": "2", "limits.memory": "256Mi"},
    }


async def test_a_pod_has_to_say_how_much_it_needs_of_what_is_limited(cluster: Stepper) -> None:
    await quota(cluster, limits_cpu="4", memory="1Gi", pods="5")
    assert await refusal(cluster, pod("a", limits={"cpu": "1"})) == (
        'pods "a" is forbidden: failed quota: small: must specify memory for: node'
    )
    assert await refusal(cluster, pod("a", init={})) == (
        'pods "a" is forbidden: failed quota: small: must specify limits.cpu for: fetch,node; memory for: fetch,node'
    )


async def test_objects_of_any_kind_are_counted(cluster: Stepper) -> None:
    await quota(cluster, count__configmaps="1")
    await cluster.api.create(CONFIGMAPS, {"metadata": {"name": "a"}}, namespace="default")
    with pytest.raises(StatusError, match="exceeded quota: small, requested: count/configmaps=1, used: "):
        await cluster.api.create(CONFIGMAPS, {"metadata": {"name": "b"}}, namespace="default")
    await cluster.delete(CONFIGMAPS, "a")
    await cluster.api.create(CONFIGMAPS, {"metadata": {"name": "b"}}, namespace="default")
    await cluster.advance(11)
    assert cluster.api.get(RESOURCE_QUOTAS, "default", "small")["status"]["used"] == {"count/configmaps": "1"}


async def test_other_namespaces_and_what_needs_nothing_are_left_alone(cluster: Stepper) -> None:
    await quota(cluster, pods="0", requests_cpu="0")
    await cluster.namespace("other")
    await cluster.api.create(PODS, pod("a"), namespace="other")
    await cluster.api.create(CONFIGMAPS, {"metadata": {"name": "a"}}, namespace="default")


async def test_a_quota_with_scopes_or_a_negative_amount_is_refused(cluster: Stepper) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}}
    await assert_refused(cluster.api.create(RESOURCE_QUOTAS, body, namespace="default"), 501)
    with pytest.raises(StatusError, match=r"spec.hard\[pods\]: Invalid value"):
        await quota(cluster, pods="-1")


def test_what_devices_a_pod_uses() -> None:
    used = usage(PODS, pod("a", requests={"nvidia.com/gpu": "8"}, limits={"nvidia.com/gpu": "8"}))
    assert str(used["requests.nvidia.com/gpu"]) == "8"
