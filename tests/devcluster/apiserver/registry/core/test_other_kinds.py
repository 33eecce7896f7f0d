"""Services, Secrets, ConfigMaps, Events and PersistentVolumeClaims at the API."""

import base64
from typing import Any

import pytest
from support.apiserver import mistakes_of

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import (
    CONFIGMAPS,
    EVENTS,
    EVENTS_V1,
    HORIZONTAL_POD_AUTOSCALERS,
    PERSISTENT_VOLUME_CLAIMS,
    SECRETS,
    GroupResource,
)
from trainmaster.runtime.jsontree import JsonObject, copy_tree

SERVICES = GroupResource("", "services")


async def create(api: Api, name: str = "s", *, dry_run: bool = False, **spec: Any) -> JsonObject:
    spec.setdefault("ports", [{"port": 80}])
    service = {"metadata": {"name": name}, "spec": spec}
    return await api.create(SERVICES, service, namespace="default", options=WriteOptions(dry_run=dry_run))


@pytest.mark.parametrize(
    ("spec", "mistakes"),
    [
        ({"ports": []}, {("spec.ports", "Required")}),
        ({"type": "Odd"}, {("spec.type", "NotSupported")}),
        (
            {"ports": [{"port": 1}, {"port": 2}]},
            {("spec.ports[0].name", "Required"), ("spec.ports[1].name", "Required")},
        ),
        ({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}, {("spec.ports[1].name", "Duplicate")}),
        ({"type": "ExternalName", "externalName": "-"}, {("spec.externalName", "Invalid")}),
    ],
)
async def test_what_a_real_one_refuses_is_refused(api: Api, spec: JsonObject, mistakes: set[tuple[str, str]]) -> None:
    assert await mistakes_of(create(api, **spec)) == mistakes


async def test_no_two_services_get_the_same_address_or_port(api: Api) -> None:
    first, second = [(await create(api, name, type="NodePort"))["spec"] for name in "ab"]
    assert first["clusterIP"] != second["clusterIP"]
    ports = {spec["ports"][0]["nodePort"] for spec in (first, second)}
    assert len(ports) == 2
    assert ports <= set(range(30_000, 32_768))
    with pytest.raises(StatusError, match="does not match the current range"):
        await create(api, "c", clusterIP="192.168.001.001")  # as older clients write it


async def test_an_update_keeps_what_was_given_out(api: Api) -> None:
    made = await create(api, type="NodePort")
    bare = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}, {"name": "x", "port": 81}]}}
    bare["spec"]["ports"][0]["name"] = "y"  # type: ignore[index]
    changed = await api.update(SERVICES, bare, namespace="default")
    assert changed["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    first, second = (port["nodePort"] for port in changed["spec"]["ports"])
    assert first == made["spec"]["ports"][0]["nodePort"]
    assert second not in (None, first)
    moved = copy_tree(changed)
    moved["spec"] |= {"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}
    assert await mistakes_of(api.update(SERVICES, moved)) == {("spec.clusterIPs[0]", "Invalid")}


async def test_another_type_drops_what_it_does_not_have(api: Api) -> None:
    made = copy_tree(await create(api, type="LoadBalancer", externalTrafficPolicy="Local"))
    made["spec"]["type"] = "ClusterIP"
    spec = (await api.update(SERVICES, made))["spec"]
    assert not spec.keys() & {"externalTrafficPolicy", "allocateLoadBalancerNodePorts"}
    assert "nodePort" not in spec["ports"][0]


BIG = 1024 * 1024


def secret(kind: str, **data: str) -> JsonObject:
    return {"metadata": {"name": "s"}, "type": kind, "stringData": data}


@pytest.mark.parametrize(
    ("obj", "mistakes"),
    [
        (secret("kubernetes.io/tls"), {("data[tls.crt]", "Required"), ("data[tls.key]", "Required")}),
        (secret("kubernetes.io/dockercfg"), {("data[.dockercfg]", "Required")}),
        (secret("kubernetes.io/dockercfg", **{".dockercfg": "[]"}), {("data[.dockercfg]", "Invalid")}),
        (
            secret("kubernetes.io/service-account-token"),
            {("metadata.annotations[kubernetes.io/service-account.name]", "Required")},
        ),
        (secret("Opaque", a="x" * (BIG + 1)), {("data", "TooLong")}),
    ],
)
async def test_a_secret_holds_what_its_type_promises(api: Api, obj: JsonObject, mistakes: set[tuple[str, str]]) -> None:
    assert await mistakes_of(api.create(SECRETS, obj, namespace="default")) == mistakes


async def test_a_secret_may_be_as_big_as_a_real_one(api: Api) -> None:
    """The limit is on the bytes themselves, not on their encoded form."""
    await api.create(SECRETS, secret("Opaque", a="x" * BIG), namespace="default")
    binary = {"a": base64.b64encode(b"x" * BIG).decode()}
    await api.create(CONFIGMAPS, {"metadata": {"name": "c"}, "binaryData": binary}, namespace="default")
    assert await mistakes_of(
        api.create(
            CONFIGMAPS, {"metadata": {"name": "d"}, "binaryData": binary, "data": {"b": "x"}}, namespace="default"
        )
    ) == {("[]", "TooLong")}


async def test_a_tls_secret_without_a_certificate_is_taken_with_a_warning(api: Api) -> None:
    options = WriteOptions()
    obj = secret("kubernetes.io/tls", **{"tls.crt": "x", "tls.key": "y"})
    await api.create(SECRETS, obj, namespace="default", options=options)
    assert options.warnings == ["tls: failed to find any PEM data in certificate input"]


def new_style(**fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-02T03:04:05.123456Z",
        "reportingController": "trainmaster",
        "reportingInstance": "pod-1",
        "action": "Reconciling",
        "reason": "Created",
        "type": "Normal",
        "note": "made it",
        "regarding": {"kind": "TrainJob", "name": "t", "namespace": "default", "uid": "u"},
        **fields,
    }


async def test_a_series_counts_in_the_old_form_too(api: Api) -> None:
    made = copy_tree(await api.create(EVENTS_V1, new_style(), namespace="default"))
    made["series"] = {"count": 4, "lastObservedTime": "2026-01-02T03:05:00.000000Z"}
    await api.update(EVENTS_V1, made, namespace="default")
    old = api.get(EVENTS, "default", "e")
    assert (old["count"], old["firstTimestamp"], old["lastTimestamp"]) == (
        4,
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:05:00Z",
    )


def claim(size: str = "1Gi", **spec: Any) -> JsonObject:
    resources = {"requests": {"storage": size}}
    return {"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}}


@pytest.mark.parametrize(
    ("obj", "mistakes"),
    [(claim(accessModes=["ReadWriteOncePod", "ReadOnlyMany"]), {("spec.accessModes", "Forbidden")})],
)
async def test_of_claims_what_a_real_server_refuses_is_refused(
    api: Api, obj: JsonObject, mistakes: set[tuple[str, str]]
) -> None:
    assert mistakes <= await mistakes_of(api.create(PERSISTENT_VOLUME_CLAIMS, obj, namespace="default"))


async def test_a_bound_claim_cannot_grow_without_a_class_that_could_do_it(api: Api) -> None:
    made = copy_tree(await api.create(PERSISTENT_VOLUME_CLAIMS, claim(), namespace="default"))
    made["spec"]["volumeName"] = "v"
    made = copy_tree(await api.update(PERSISTENT_VOLUME_CLAIMS, made))
    made["status"] = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    bound = copy_tree(await api.update(PERSISTENT_VOLUME_CLAIMS, made, subresource="status"))
    bound["spec"]["resources"]["requests"]["storage"] = "2Gi"
    with pytest.raises(StatusError, match="only dynamically provisioned pvc can be resized") as caught:
        await api.update(PERSISTENT_VOLUME_CLAIMS, bound)
    assert caught.value.code == 403
    bound["spec"]["resources"]["requests"]["storage"] = "1Mi"
    with pytest.raises(StatusError, match="field can not be less than status"):
        await api.update(PERSISTENT_VOLUME_CLAIMS, bound)


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
    created = await made(api, minReplicas=None)
    assert created["spec"]["minReplicas"] == 1
    assert created["spec"]["metrics"] == [CPU]
    assert created["status"] == {"currentMetrics": [], "desiredReplicas": 0}
    assert "generation" not in created["metadata"]
