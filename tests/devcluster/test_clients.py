"""The habits of the Python client libraries, by the asynchronous one that the controller uses for its configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes_asyncio import client, config, watch

from trainmaster.devcluster.testing.envtest import Environment

_GROUP: dict[str, Any] = {"group": "example.com", "version": "v1", "namespace": "default", "plural": "things"}
_CRD: Any = {
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture
async def api_client(devcluster_server: Environment) -> AsyncIterator[Any]:
    settings = client.Configuration()
    await config.load_kube_config(str(devcluster_server.kubeconfig), client_configuration=settings)
    async with client.ApiClient(settings) as opened:
        yield opened


async def test_typed_objects(api_client: Any) -> None:
    core = client.CoreV1Api(api_client)
    names = {each.metadata.name for each in (await core.list_namespace()).items}
    assert {"default", "kube-system", "kubeflow-system"} <= names
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"x": "y"}), data={"k": "1"})
    created = await core.create_namespaced_config_map("default", body)
    assert created.metadata.creation_timestamp.tzinfo is not None
    patched = await core.patch_namespaced_config_map("a", "default", {"data": {"k": "2"}})
    assert patched.data == {"k": "2"}
    listed = await core.list_namespaced_config_map("default", label_selector="x in (y, z)")
    assert [each.metadata.name for each in listed.items] == ["a"]
    await core.delete_namespaced_config_map("a", "default")
    with pytest.raises(client.ApiException) as refusal:
        await core.read_namespaced_config_map("a", "default")
    assert (refusal.value.status, refusal.value.reason) == (404, "Not Found")


async def test_custom_objects(api_client: Any) -> None:
    await client.ApiextensionsV1Api(api_client).create_custom_resource_definition(_CRD)
    custom = client.CustomObjectsApi(api_client)
    body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"size": 1}}
    await custom.create_namespaced_custom_object(**_GROUP, body=body)
    patch = {"spec": {"colour": "red"}}
    api_client.set_default_header("Content-Type", "application/merge-patch+json")
    patched = await custom.patch_namespaced_custom_object(**_GROUP, name="one", body=patch)
    assert patched["spec"] == {"size": 1, "colour": "red"}
    listed = await custom.list_namespaced_custom_object(**_GROUP)
    assert (listed["kind"], listed["items"][0]["kind"]) == ("ThingList", "Thing")
    await custom.delete_namespaced_custom_object(**_GROUP, name="one")
    assert (await custom.list_namespaced_custom_object(**_GROUP))["items"] == []


async def test_watch(api_client: Any) -> None:
    core = client.CoreV1Api(api_client)
    version = (await core.list_namespaced_config_map("default")).metadata.resource_version
    await core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a")))
    events = []
    async with watch.Watch() as stream:
        async for event in stream.stream(
            core.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=1
        ):
            events.append((event["type"], event["object"].metadata.name))
            stream.stop()
    assert events == [("ADDED", "a")]
