"""What new pods get: from their service account, priority class and runtime class."""

from typing import Any

import pytest
from support.apiserver import create_pod
from support.devcluster.stepper import Stepper

from trainmaster.devcluster.apiserver.admission.plugins import serviceaccount
from trainmaster.devcluster.apiserver.admission.plugins.serviceaccount import TOKEN_DIRECTORY
from trainmaster.devcluster.apiserver.bootstrap import add_system_priority_classes
from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.resources import PODS, PRIORITY_CLASSES, RUNTIME_CLASSES, SERVICE_ACCOUNTS
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
    found: JsonObject = (await cluster.api.create(PODS, pod, namespace="default"))["spec"]
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
    assert bool((await _create(cluster, serviceAccountName="me", **said)).get("volumes")) == mounted


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
    assert (await cluster.api.update(PODS, {**created, "spec": spec}))["spec"] == created["spec"]


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
