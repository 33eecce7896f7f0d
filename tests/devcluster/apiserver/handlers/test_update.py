"""PUT and PATCH over HTTPS: formats, options, refusals."""

from __future__ import annotations

import pytest
from support.apiserver import CONFIGMAPS_PATH, configmap, send

from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.testing.envtest import Environment

_POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


async def test_update_and_conflict(devcluster_server: Environment) -> None:
    _, created, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, configmap(k="1"))
    status, updated, _ = await send(devcluster_server, "PUT", f"{CONFIGMAPS_PATH}/a", {**created, "data": {"k": "2"}})
    assert (status, updated["data"]) == (200, {"k": "2"})
    status, conflict, _ = await send(devcluster_server, "PUT", f"{CONFIGMAPS_PATH}/a", {**created, "data": {"k": "3"}})
    assert (status, conflict["reason"]) == (409, "Conflict")


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/merge-patch+json", b'{"data":{"k":"2"}}'),
        ("application/strategic-merge-patch+json", b'{"data":{"k":"2"}}'),
        ("application/json-patch+json", b'[{"op":"replace","path":"/data/k","value":"2"}]'),
    ],
)
async def test_patches(devcluster_server: Environment, content_type: str, patch: bytes) -> None:
    await send(devcluster_server, "POST", CONFIGMAPS_PATH, configmap(k="1", other="x"))
    status, patched, _ = await send(
        devcluster_server, "PATCH", f"{CONFIGMAPS_PATH}/a", patch, content_type=content_type
    )
    assert (status, patched["data"]) == (200, {"k": "2", "other": "x"})


@pytest.mark.parametrize("body", [b"apiVersion: v1\nkind: ConfigMap\ndata: {k: '1'}\n", b'{"data":{"k":"1"}}'])
async def test_server_side_apply_takes_yaml_and_json(devcluster_server: Environment, body: bytes) -> None:
    apply = {"content_type": "application/apply-patch+yaml"}
    path = f"{CONFIGMAPS_PATH}/a"
    if body.startswith(b"{"):
        body = b'{"apiVersion":"v1","kind":"ConfigMap",' + body[1:]
    status, created, _ = await send(devcluster_server, "PATCH", path, body, **apply, fieldManager="me")
    assert (status, created["data"]) == (201, {"k": "1"})
    assert created["metadata"]["managedFields"][0]["manager"] == "me"
    status, again, _ = await send(devcluster_server, "PATCH", path, body, **apply, fieldManager="me")
    assert (status, again["metadata"]["resourceVersion"]) == (200, created["metadata"]["resourceVersion"])
    status, conflict, _ = await send(
        devcluster_server,
        "PATCH",
        path,
        body.replace(b"1'", b"2'").replace(b'"1"', b'"2"'),
        **apply,
        fieldManager="you",
    )
    assert (status, conflict["details"]["causes"][0]["reason"]) == (409, "FieldManagerConflict")


async def test_the_rules_of_patch_options(devcluster_server: Environment) -> None:
    path = f"{CONFIGMAPS_PATH}/a"
    for content_type, query, code in (
        ("application/apply-patch+yaml", {}, 422),
        ("application/merge-patch+json", {"force": "true"}, 422),
        ("application/json", {}, 415),
        ("text/plain", {}, 415),
    ):
        status, document, _ = await send(devcluster_server, "PATCH", path, b"{}", content_type=content_type, **query)
        assert (status, document["kind"]) == (code, "Status")


async def test_the_manager_is_the_program_if_it_does_not_say(devcluster_server: Environment) -> None:
    async with devcluster_server.session() as session:
        headers = {"User-Agent": "my-tool/1.0 (linux)"}
        async with session.post(CONFIGMAPS_PATH, json=configmap(k="v"), headers=headers) as response:
            created = await response.json()
    assert [entry["manager"] for entry in created["metadata"]["managedFields"]] == ["my-tool"]


async def test_status_is_written_by_its_subresource_only(devcluster_server: Environment) -> None:
    path = "/api/v1/namespaces/default/pods"
    await send(devcluster_server, "POST", path, _POD)
    merge = {"content_type": "application/merge-patch+json"}
    patch = b'{"status":{"phase":"Running"},"metadata":{"labels":{"a":"b"}}}'
    await send(devcluster_server, "PATCH", f"{path}/p", patch, **merge)
    pod = devcluster_server.api.get(PODS, "default", "p")
    assert (pod["status"]["phase"], pod["metadata"]["labels"]) == ("Pending", {"a": "b"})
    status, patched, _ = await send(
        devcluster_server, "PATCH", f"{path}/p/status", b'{"status":{"phase":"Running"}}', **merge
    )
    assert (status, patched["status"]["phase"]) == (200, "Running")
    assert (await send(devcluster_server, "GET", f"{path}/p/status"))[1]["status"]["phase"] == "Running"
    assert (await send(devcluster_server, "DELETE", f"{path}/p/status"))[0] == 405
