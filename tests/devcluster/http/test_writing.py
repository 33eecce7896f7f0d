"""POST, PUT, PATCH and DELETE over HTTPS: formats, options, refusals."""

from __future__ import annotations

import io
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, PODS
from trainmaster.devcluster.testing.envtest import Environment

_LIST = "/api/v1/namespaces/default/configmaps"
_POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


async def _send(
    server: Environment,
    method: str,
    path: str,
    body: Any = None,
    *,
    content_type: str = "application/json",
    **query: str,
) -> tuple[int, Any, list[str]]:
    options: dict[str, Any] = {"params": query}
    if isinstance(body, bytes):
        options |= {"data": io.BytesIO(body), "headers": {"Content-Type": content_type}}
    elif body is not None:
        options["json"] = body
    async with server.session() as session, session.request(method, path, **options) as response:
        return response.status, await response.json(), response.headers.getall("Warning", [])


def _configmap(name: str = "a", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def test_create_from_json_and_yaml(devcluster_server: Environment) -> None:
    status, created, _ = await _send(devcluster_server, "POST", _LIST, _configmap(k="v"))
    assert (status, created["data"]) == (201, {"k": "v"})
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata:\n  day: '2026-01-01'\n"
    status, created, _ = await _send(devcluster_server, "POST", _LIST, text, content_type="application/yaml")
    assert (status, created["data"]) == (201, {"day": "2026-01-01"})
    status, existing, _ = await _send(devcluster_server, "POST", _LIST, _configmap())
    assert (status, existing["reason"], existing["details"]["kind"]) == (409, "AlreadyExists", "configmaps")


@pytest.mark.parametrize(
    ("body", "content_type", "code", "text"),
    [
        (b'{"kind": "ConfigMap",}', "application/json", 400, "line 1 column"),
        (b"", "application/json", 400, "line 1 column 1"),
        (b"[1]", "application/json", 400, "must be an object, not an array"),
        (b"null", "application/json", 400, "must be an object, not null"),
        (b"a: [", "application/yaml", 400, "not valid YAML"),
        (b"{" * 100_000, "application/yaml", 400, "nested more than"),
        (b"[" * 100_000, "application/json", 400, "not valid JSON"),
        (b"k8s\x00", "application/vnd.kubernetes.protobuf", 415, "kubectl create -f"),
        (b"<a/>", "text/xml", 415, "accepted media types include: application/json"),
        (b'"' + b"x" * (3 * 1024 * 1024) + b'"', "application/json", 413, "larger than"),
    ],
)
async def test_bodies_that_cannot_be_read(
    devcluster_server: Environment, body: bytes, content_type: str, code: int, text: str
) -> None:
    status, document, _ = await _send(devcluster_server, "POST", _LIST, body, content_type=content_type)
    assert (status, document["kind"], document["code"]) == (code, "Status", code)
    assert text in document["message"]


async def test_unknown_and_repeated_fields_are_judged_as_asked(devcluster_server: Environment) -> None:
    body = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"1","k":"2"},"bogus":1}'
    status, refused, _ = await _send(devcluster_server, "POST", _LIST, body, fieldValidation="Strict")
    assert (status, refused["reason"]) == (400, "BadRequest")
    assert 'duplicate field "data.k"' in refused["message"]
    status, created, warnings = await _send(devcluster_server, "POST", _LIST, body, fieldValidation="Warn")
    assert (status, created["data"]) == (201, {"k": "2"})
    assert warnings == ['299 - "duplicate field \\"data.k\\""', '299 - "unknown field \\"bogus\\""']
    await _send(devcluster_server, "DELETE", f"{_LIST}/a")
    status, _, warnings = await _send(devcluster_server, "POST", _LIST, body, fieldValidation="Ignore")
    assert (status, warnings) == (201, [])


@pytest.mark.parametrize(
    ("method", "path", "query", "text"),
    [
        ("POST", _LIST, {"dryRun": "Some"}, "dryRun"),
        ("POST", _LIST, {"fieldValidation": "Loose"}, '"Strict", "Warn", "Ignore"'),
        ("POST", _LIST, {"fieldManager": "x" * 129}, "fieldManager"),
        ("DELETE", f"{_LIST}/a", {"propagationPolicy": "Sideways"}, "propagationPolicy"),
    ],
)
async def test_wrong_options_are_refused_before_anything_happens(
    devcluster_server: Environment, method: str, path: str, query: dict[str, str], text: str
) -> None:
    body = _configmap() if method == "POST" else None
    status, document, _ = await _send(devcluster_server, method, path, body, **query)
    assert status == 422
    assert text in document["message"]
    assert devcluster_server.api.list(CONFIGMAPS, "default")[0] == []


async def test_dry_run_stores_nothing(devcluster_server: Environment) -> None:
    status, created, _ = await _send(devcluster_server, "POST", _LIST, _configmap(), dryRun="All")
    assert (status, created["metadata"]["name"]) == (201, "a")
    assert devcluster_server.api.list(CONFIGMAPS, "default")[0] == []


async def test_update_and_conflict(devcluster_server: Environment) -> None:
    _, created, _ = await _send(devcluster_server, "POST", _LIST, _configmap(k="1"))
    status, updated, _ = await _send(devcluster_server, "PUT", f"{_LIST}/a", {**created, "data": {"k": "2"}})
    assert (status, updated["data"]) == (200, {"k": "2"})
    status, conflict, _ = await _send(devcluster_server, "PUT", f"{_LIST}/a", {**created, "data": {"k": "3"}})
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
    await _send(devcluster_server, "POST", _LIST, _configmap(k="1", other="x"))
    status, patched, _ = await _send(devcluster_server, "PATCH", f"{_LIST}/a", patch, content_type=content_type)
    assert (status, patched["data"]) == (200, {"k": "2", "other": "x"})


@pytest.mark.parametrize("body", [b"apiVersion: v1\nkind: ConfigMap\ndata: {k: '1'}\n", b'{"data":{"k":"1"}}'])
async def test_server_side_apply_takes_yaml_and_json(devcluster_server: Environment, body: bytes) -> None:
    apply = {"content_type": "application/apply-patch+yaml"}
    path = f"{_LIST}/a"
    if body.startswith(b"{"):
        body = b'{"apiVersion":"v1","kind":"ConfigMap",' + body[1:]
    status, created, _ = await _send(devcluster_server, "PATCH", path, body, **apply, fieldManager="me")
    assert (status, created["data"]) == (201, {"k": "1"})
    assert created["metadata"]["managedFields"][0]["manager"] == "me"
    status, again, _ = await _send(devcluster_server, "PATCH", path, body, **apply, fieldManager="me")
    assert (status, again["metadata"]["resourceVersion"]) == (200, created["metadata"]["resourceVersion"])
    status, conflict, _ = await _send(
        devcluster_server,
        "PATCH",
        path,
        body.replace(b"1'", b"2'").replace(b'"1"', b'"2"'),
        **apply,
        fieldManager="you",
    )
    assert (status, conflict["details"]["causes"][0]["reason"]) == (409, "FieldManagerConflict")


async def test_the_rules_of_patch_options(devcluster_server: Environment) -> None:
    path = f"{_LIST}/a"
    for content_type, query, code in (
        ("application/apply-patch+yaml", {}, 422),
        ("application/merge-patch+json", {"force": "true"}, 422),
        ("application/json", {}, 415),
        ("text/plain", {}, 415),
    ):
        status, document, _ = await _send(devcluster_server, "PATCH", path, b"{}", content_type=content_type, **query)
        assert (status, document["kind"]) == (code, "Status")


async def test_the_manager_is_the_program_if_it_does_not_say(devcluster_server: Environment) -> None:
    async with devcluster_server.session() as session:
        headers = {"User-Agent": "my-tool/1.0 (linux)"}
        async with session.post(_LIST, json=_configmap(k="v"), headers=headers) as response:
            created = await response.json()
    assert [entry["manager"] for entry in created["metadata"]["managedFields"]] == ["my-tool"]


async def test_delete_tells_whether_the_object_is_gone(devcluster_server: Environment) -> None:
    _, created, _ = await _send(devcluster_server, "POST", _LIST, _configmap())
    wrong = {"preconditions": {"uid": "other"}}
    assert (await _send(devcluster_server, "DELETE", f"{_LIST}/a", wrong))[0] == 409
    status, gone, _ = await _send(devcluster_server, "DELETE", f"{_LIST}/a", {"propagationPolicy": "Background"})
    assert (status, gone["status"]) == (200, "Success")
    assert gone["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    held = _configmap("b")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await _send(devcluster_server, "POST", _LIST, held)
    status, lingering, _ = await _send(devcluster_server, "DELETE", f"{_LIST}/b")
    assert status == 200
    assert lingering["kind"] == "ConfigMap"
    assert "deletionTimestamp" in lingering["metadata"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"gracePeriodSeconds": "soon"}, 400),
        ({"preconditions": ["x"]}, 400),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422),
        ({"dryRun": ["All"]}, 200),
    ],
)
async def test_delete_options_are_checked(devcluster_server: Environment, options: dict[str, Any], code: int) -> None:
    await _send(devcluster_server, "POST", _LIST, _configmap())
    assert (await _send(devcluster_server, "DELETE", f"{_LIST}/a", options))[0] == code
    assert devcluster_server.api.get(CONFIGMAPS, "default", "a")


async def test_delete_of_a_selection(devcluster_server: Environment) -> None:
    for name in ("a", "b"):
        obj = _configmap(name)
        obj["metadata"]["labels"] = {"name": name}
        await _send(devcluster_server, "POST", _LIST, obj)
    status, deleted, _ = await _send(devcluster_server, "DELETE", _LIST, labelSelector="name=a")
    assert (status, deleted["kind"], len(deleted["items"])) == (200, "ConfigMapList", 1)
    assert [record.metadata["name"] for record in devcluster_server.api.list(CONFIGMAPS, "default")[0]] == ["b"]


async def test_status_is_written_by_its_subresource_only(devcluster_server: Environment) -> None:
    path = "/api/v1/namespaces/default/pods"
    await _send(devcluster_server, "POST", path, _POD)
    merge = {"content_type": "application/merge-patch+json"}
    patch = b'{"status":{"phase":"Running"},"metadata":{"labels":{"a":"b"}}}'
    await _send(devcluster_server, "PATCH", f"{path}/p", patch, **merge)
    pod = devcluster_server.api.get(PODS, "default", "p")
    assert (pod["status"]["phase"], pod["metadata"]["labels"]) == ("Pending", {"a": "b"})
    status, patched, _ = await _send(
        devcluster_server, "PATCH", f"{path}/p/status", b'{"status":{"phase":"Running"}}', **merge
    )
    assert (status, patched["status"]["phase"]) == (200, "Running")
    assert (await _send(devcluster_server, "GET", f"{path}/p/status"))[1]["status"]["phase"] == "Running"
    assert (await _send(devcluster_server, "DELETE", f"{path}/p/status"))[0] == 405
