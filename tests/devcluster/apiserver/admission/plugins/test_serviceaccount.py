"""The admission plugins: service accounts, classes, limit ranges and levels of pod security."""

from __future__ import annotations

from typing import Any

import pytest
from support.apiserver import assert_refused, create_pod, refusal
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.admission.plugins import serviceaccount
from trainmaster.devcluster.apiserver.admission.plugins.serviceaccount import TOKEN_DIRECTORY
from trainmaster.devcluster.apiserver.bootstrap import add_system_priority_classes
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import (
    LIMIT_RANGES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    SERVICE_ACCOUNTS,
)
from trainmaster.devcluster.controllers.serviceaccount import ServiceAccountController
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.resource_requirements import pod_requests


@pytest.fixture
async def cluster(cluster: Stepper) -> Stepper:
    cluster.start(ServiceAccountController(cluster.api, root_ca="PEM"))
    await cluster.settle()
    return cluster


async def _create(cluster: Stepper, **spec: Any) -> JsonObject:
    containers = [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}
    created = await cluster.api.create(PODS, pod, namespace="default")
    found: JsonObject = created["spec"]
    return found


async def _account(cluster: Stepper, **fields: Any) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}, **fields}
    await cluster.api.create(SERVICE_ACCOUNTS, account, namespace="default")


async def test_a_pod_gets_the_token_of_the_default_account(cluster: Stepper) -> None:
    spec = await _create(cluster, initContainers=[{"name": "first", "image": "i"}])
    assert spec["serviceAccountName"] == "default"
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    token, authority, namespace = volume["projected"]["sources"]
    assert token["serviceAccountToken"] == {"expirationSeconds": 3607, "path": "token"}
    assert authority["configMap"]["name"] == "kube-root-ca.crt"
    assert namespace["downwardAPI"]["items"][0]["path"] == "namespace"
    expected = [{"name": volume["name"], "readOnly": True, "mountPath": TOKEN_DIRECTORY}]
    assert all(each["volumeMounts"] == expected for each in (*spec["containers"], *spec["initContainers"]))


async def test_a_container_with_something_in_its_place_is_left_alone(cluster: Stepper) -> None:
    mount = {"name": "own", "mountPath": TOKEN_DIRECTORY}
    own = {"name": "c", "image": "i", "volumeMounts": [mount]}
    spec = await _create(cluster, containers=[own], volumes=[{"name": "own", "emptyDir": {}}])
    assert spec["containers"][0]["volumeMounts"] == [mount]
    assert [each["name"] for each in spec["volumes"]] == ["own"]


@pytest.mark.parametrize(
    ("pod", "account", "mounted"),
    [(False, None, False), (None, False, False), (True, False, True), (False, True, False), (None, True, True)],
)
async def test_pod_and_account_may_refuse_and_the_pod_has_the_last_word(
    cluster: Stepper, pod: bool | None, account: bool | None, mounted: bool
) -> None:
    await _account(cluster, **({} if account is None else {"automountServiceAccountToken": account}))
    said = {} if pod is None else {"automountServiceAccountToken": pod}
    spec = await _create(cluster, serviceAccountName="me", **said)
    assert bool(spec.get("volumes")) == mounted


async def test_pull_secrets_come_from_the_account_unless_the_pod_has_some(cluster: Stepper) -> None:
    await _account(cluster, imagePullSecrets=[{"name": "registry"}])
    spec = await _create(cluster, serviceAccountName="me")
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    await cluster.delete(PODS, "p", namespace="default")
    spec = await _create(cluster, serviceAccountName="me", imagePullSecrets=[{"name": "own"}])
    assert spec["imagePullSecrets"] == [{"name": "own"}]


async def test_an_account_that_does_not_exist(cluster: Stepper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serviceaccount, "_PAUSE", 0)
    with pytest.raises(StatusError) as refused:
        await _create(cluster, serviceAccountName="you")
    assert refused.value.code == 403
    assert refused.value.message == (
        'pods "p" is forbidden: error looking up service account default/you: serviceaccount "you" not found'
    )


async def priority_class(cluster: Stepper, name: str, value: int, **fields: Any) -> None:
    await cluster.api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, **fields})


async def test_a_class_becomes_a_priority(cluster: Stepper) -> None:
    await priority_class(cluster, "high", 100, preemptionPolicy="Never")
    created = await create_pod(cluster, priorityClassName="high")
    assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (100, "Never")
    # Clients send what they first wrote; what was resolved stays.
    spec = {key: value for key, value in created["spec"].items() if key not in ("priority", "preemptionPolicy")}
    updated = await cluster.api.update(PODS, {**created, "spec": spec})
    assert updated["spec"] == created["spec"]


async def test_without_a_class_the_default_counts(cluster: Stepper) -> None:
    assert (await create_pod(cluster, "a"))["spec"]["priority"] == 0
    await priority_class(cluster, "usual", 7, globalDefault=True)
    created = await create_pod(cluster, "b")
    assert (created["spec"]["priority"], created["spec"]["priorityClassName"]) == (7, "usual")


async def test_rules_of_priority_classes(cluster: Stepper) -> None:
    assert (await create_pod(cluster, priorityClassName="system-node-critical"))["spec"]["priority"] == 2_000_001_000
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
    spec = (await create_pod(cluster, runtimeClassName="kata", resources={"requests": {"cpu": "1"}}))["spec"]
    assert spec["overhead"] == {"cpu": "250m"}
    assert str(pod_requests(spec)["cpu"]) == "1250m"
    assert spec["nodeSelector"] == {"sandbox": "yes"}
    assert toleration in spec["tolerations"]
    with pytest.raises(StatusError, match=r"conflict: runtimeClass\.scheduling\.nodeSelector\[sandbox\] = yes"):
        await create_pod(cluster, "q", runtimeClassName="kata", nodeSelector={"sandbox": "no"})
    with pytest.raises(StatusError, match="Pod's Overhead doesn't match RuntimeClass's defined Overhead"):
        await create_pod(cluster, "q", runtimeClassName="kata", overhead={"cpu": "1"})


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
async def test_pods_out_of_bounds_are_refused(
    cluster: Stepper, item: JsonObject, resources: JsonObject, complaint: str
) -> None:
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


LABEL = "pod-security.kubernetes.io/enforce"
GOOD: Any = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


async def namespace(cluster: Stepper, level: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {LABEL: level}}}
    await cluster.api.create(NAMESPACES, body)


async def create(cluster: Stepper, context: Any = None, pod: Any = None, **spec: Any) -> JsonObject:
    containers = [{"name": "node", "image": "i", "securityContext": context or {}, **spec.pop("container", {})}]
    body = {"metadata": {"name": "p"}, "spec": {"containers": containers, "securityContext": pod or {}, **spec}}
    return await cluster.api.create(PODS, body, namespace="team")


async def test_a_restricted_namespace_says_all_that_a_pod_lacks(cluster: Stepper) -> None:
    await namespace(cluster, "restricted")
    await assert_refused(
        create(cluster),
        403,
        'pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container '
        '"node" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "node" '
        'must set securityContext.capabilities.drop=["ALL"]',
        'runAsNonRoot != true (pod or container "node" must set securityContext.runAsNonRoot=true), seccompProfile '
        '(pod or container "node" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")',
    )
    await create(cluster, GOOD)


async def test_what_the_pod_says_counts_for_its_containers(cluster: Stepper) -> None:
    await namespace(cluster, "restricted")
    own = {field: GOOD[field] for field in ("allowPrivilegeEscalation", "capabilities")}
    shared = {field: GOOD[field] for field in ("runAsNonRoot", "seccompProfile")}
    await create(cluster, own, shared)


@pytest.mark.parametrize(
    ("context", "spec", "complaint"),
    [
        ({"privileged": True}, {}, 'privileged (container "node" must not set securityContext.privileged=true)'),
        ({}, {"hostNetwork": True}, "host namespaces (hostNetwork=true)"),
        ({"capabilities": {"add": ["SYS_ADMIN", "KILL"]}}, {}, 'must not include "SYS_ADMIN" in'),
        ({}, {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, 'hostPath volumes (volume "v")'),
        ({}, {"container": {"ports": [{"containerPort": 1, "hostPort": 2}]}}, "must not use hostPorts 2"),
        ({"seccompProfile": {"type": "Unconfined"}}, {}, "seccompProfile"),
    ],
)
async def test_baseline_refuses_what_reaches_the_host(
    cluster: Stepper, context: Any, spec: Any, complaint: str
) -> None:
    await namespace(cluster, "baseline")
    await assert_refused(create(cluster, context, **spec), 403, 'violates PodSecurity "baseline:latest"', complaint)
    await create(cluster)


@pytest.mark.parametrize(
    ("context", "spec", "complaint"),
    [
        ({**GOOD, "runAsUser": 0}, {}, "runAsUser=0"),
        ({**GOOD, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}, {}, "unrestricted capabilities"),
        (GOOD, {"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]}, 'volume "v" uses nfs'),
    ],
)
async def test_restricted_refuses_more(cluster: Stepper, context: Any, spec: Any, complaint: str) -> None:
    await namespace(cluster, "restricted")
    await assert_refused(create(cluster, context, **spec), 403, complaint)


async def test_an_unknown_level_is_refused(cluster: Stepper) -> None:
    await assert_refused(namespace(cluster, "strict"), 422, "must be one of privileged, baseline, restricted")
    await namespace(cluster, "privileged")
    await create(cluster, {"privileged": True})
