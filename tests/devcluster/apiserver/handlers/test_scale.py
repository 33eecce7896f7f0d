"""The scale subresource of custom resources."""

from typing import Any

import pytest
from support.devcluster.envtest import Environment
from support.webhooks import HookedServer, patch, rule

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import PatchType
from trainmaster.devcluster.apiserver.resources import CRDS, GroupResource
from trainmaster.runtime.jsontree import JsonObject

THINGS = GroupResource("example.com", "things")
_PATH = "/apis/example.com/v1/namespaces/default/things/one/scale"


def definition(**scale: str) -> JsonObject:
    paths = {"specReplicasPath": ".spec.workers.count", "statusReplicasPath": ".status.count"}
    status = {"type": "object", "properties": {"count": {"type": "integer"}, "selector": {"type": "string"}}}
    workers = {"type": "object", "properties": {"count": {"type": "integer", "maximum": 10}}}
    spec = {"type": "object", "properties": {"workers": workers, "colour": {"type": "string"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": {**paths, "labelSelectorPath": ".status.selector", **scale}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version],
        },
    }


@pytest.fixture
async def server(devcluster_server: Environment) -> Environment:
    api = devcluster_server.api
    await api.create(CRDS, definition())
    thing = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "one"},
        "spec": {"workers": {"count": 2}, "colour": "red"},
    }
    await api.create(THINGS, thing, namespace="default")
    status = {"status": {"count": 1, "selector": "app=x"}}
    await api.patch(THINGS, "default", "one", status, patch_type=PatchType.MERGE, subresource="status")
    return devcluster_server


async def _call(server: Environment, method: str, *, patch_type: str = "", **options: Any) -> tuple[int, Any]:
    if patch_type:
        options["headers"] = {"Content-Type": f"application/{patch_type}"}
    async with server.session() as session, session.request(method, _PATH, **options) as response:
        return response.status, await response.json()


def _stored(server: Environment) -> JsonObject:
    return server.api.get(THINGS, "default", "one")


async def test_get_shows_the_numbers(server: Environment) -> None:
    status, scale = await _call(server, "GET")
    assert status == 200
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=x"}
    assert scale["metadata"]["resourceVersion"] == _stored(server)["metadata"]["resourceVersion"]


async def test_put_changes_the_number_and_nothing_else(server: Environment) -> None:
    _, scale = await _call(server, "GET")
    scale["metadata"]["labels"] = {"not": "taken"}
    status, answer = await _call(server, "PUT", json={**scale, "spec": {"replicas": 5}, "status": {"replicas": 9}})
    assert (status, answer["spec"], answer["status"]["replicas"]) == (200, {"replicas": 5}, 1)
    stored = _stored(server)
    assert stored["spec"] == {"workers": {"count": 5}, "colour": "red"}
    assert stored["metadata"]["generation"] == 2
    assert "labels" not in stored["metadata"]
    managers = [each for each in stored["metadata"]["managedFields"] if each.get("subresource") == "scale"]
    assert managers[0]["fieldsV1"] == {"f:spec": {"f:workers": {"f:count": {}}}}


async def test_an_old_scale_is_refused_and_one_without_a_version_taken(server: Environment) -> None:
    _, scale = await _call(server, "GET")
    await _call(server, "PUT", json={**scale, "spec": {"replicas": 5}})
    assert (await _call(server, "PUT", json={**scale, "spec": {"replicas": 6}}))[0] == 409
    without = {"metadata": {"name": "one"}, "spec": {"replicas": 0}}
    status, answer = await _call(server, "PUT", json=without)
    assert (status, answer["spec"]) == (200, {})
    assert _stored(server)["spec"]["workers"] == {"count": 0}


async def test_patches(server: Environment) -> None:
    merge = {"spec": {"replicas": 3}}
    assert (await _call(server, "PATCH", patch_type="merge-patch+json", json=merge))[0] == 200
    assert _stored(server)["spec"]["workers"]["count"] == 3
    operation = [{"op": "replace", "path": "/spec/replicas", "value": 4}]
    assert (await _call(server, "PATCH", patch_type="json-patch+json", json=operation))[0] == 200
    assert _stored(server)["spec"]["workers"]["count"] == 4
    assert (await _call(server, "PATCH", patch_type="strategic-merge-patch+json", json=merge))[0] == 415
    old = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 5}}
    assert (await _call(server, "PATCH", patch_type="merge-patch+json", json=old))[0] == 409


@pytest.mark.parametrize(
    ("scale", "code", "text"),
    [
        ({"spec": {"replicas": -1}}, 422, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        ({"spec": {"replicas": "3"}}, 400, "whole number"),
        ({"spec": {"replicas": 11}}, 422, "spec.workers.count"),
        ({"metadata": {"name": "two"}}, 400, "does not match the name on the URL"),
        ({"kind": "Thing"}, 400, "is Scale, not Thing"),
    ],
)
async def test_what_is_refused(server: Environment, scale: JsonObject, code: int, text: str) -> None:
    status, answer = await _call(server, "PUT", json=scale)
    assert status == code
    assert text in answer["message"]
    assert _stored(server)["spec"]["workers"] == {"count": 2}


async def test_an_object_without_the_number_has_no_scale_until_somebody_sets_it(server: Environment) -> None:
    without = {"spec": {"workers": None}}
    await server.api.patch(THINGS, "default", "one", without, patch_type=PatchType.MERGE)
    status, answer = await _call(server, "GET")
    assert status == 500
    assert 'the spec replicas field ".spec.workers.count" does not exist' in answer["message"]
    status, answer = await _call(server, "PATCH", patch_type="merge-patch+json", json={"metadata": {"labels": {}}})
    assert (status, answer["message"]) == (400, 'the spec replicas field ".spec.workers.count" cannot be empty')
    merge = {"spec": {"replicas": 3}}
    assert (await _call(server, "PATCH", patch_type="merge-patch+json", json=merge))[0] == 200
    assert _stored(server)["spec"]["workers"] == {"count": 3}


async def test_webhooks_see_and_change_a_scale(server: Environment, hooked: HookedServer) -> None:
    hooked.hooks.on("/mutates", patch({"op": "replace", "path": "/spec/replicas", "value": 4}))
    hooked.hooks.on("/validates", {"allowed": False, "status": {"message": "no", "code": 403}})
    of_scale = [rule("things/scale", group="example.com")]
    await hooked.mutating(hooked.webhook("/mutates", rules=of_scale))
    await hooked.validating(
        hooked.webhook("/validates", rules=of_scale),
        hooked.webhook("/not-asked", rules=[rule("things", group="example.com")]),
    )
    merge = {"spec": {"replicas": 3}}
    status, answer = await _call(server, "PATCH", patch_type="merge-patch+json", json=merge)
    assert (status, "denied the request: no" in answer["message"]) == (403, True)
    (asked,) = hooked.hooks.requests("/validates")
    assert asked["kind"] == asked["requestKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (asked["resource"]["resource"], asked["subResource"], asked["name"]) == ("things", "scale", "one")
    assert [asked[each]["kind"] for each in ("object", "oldObject")] == ["Scale", "Scale"]
    assert [asked[each]["spec"] for each in ("object", "oldObject")] == [{"replicas": 4}, {"replicas": 2}]
    assert asked["object"]["status"] == {"replicas": 1, "selector": "app=x"}


async def test_dry_run(server: Environment) -> None:
    async with server.session() as session:
        body = {"spec": {"replicas": 7}}
        async with session.put(f"{_PATH}?dryRun=All", json=body) as response:
            assert (await response.json())["spec"] == {"replicas": 7}
    assert _stored(server)["spec"]["workers"] == {"count": 2}


async def test_discovery(server: Environment) -> None:
    async with server.session() as session, session.get("/apis/example.com/v1") as response:
        entries = {each["name"]: each for each in (await response.json())["resources"]}
    scale = entries["things/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


async def test_paths_lead_into_spec_and_status(devcluster_server: Environment) -> None:
    with pytest.raises(StatusError, match=r"specReplicasPath: should be a json path under \.spec"):
        await devcluster_server.api.create(CRDS, definition(specReplicasPath=".status.count"))
