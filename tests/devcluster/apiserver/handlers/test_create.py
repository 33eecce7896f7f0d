"""POST over HTTPS: formats, options, refusals."""

from __future__ import annotations

import pytest
from support.apiserver import CONFIGMAPS_PATH, configmap, send

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.testing.envtest import Environment


async def test_create_from_json_and_yaml(devcluster_server: Environment) -> None:
    status, created, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, configmap(k="v"))
    assert (status, created["data"]) == (201, {"k": "v"})
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata:\n  day: '2026-01-01'\n"
    status, created, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, text, content_type="application/yaml")
    assert (status, created["data"]) == (201, {"day": "2026-01-01"})
    status, existing, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, configmap())
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
        (b'{"a":' * 200 + b"1" + b"}" * 200, "application/json", 400, "nested more than 150 levels"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "application/yaml", 400, "nested more than 150 levels"),
        (b"k8s\x00", "application/vnd.kubernetes.protobuf", 415, "kubectl create -f"),
        (b"<a/>", "text/xml", 415, "accepted media types include: application/json"),
        (b'"' + b"x" * (3 * 1024 * 1024) + b'"', "application/json", 413, "larger than"),
    ],
)
async def test_bodies_that_cannot_be_read(
    devcluster_server: Environment, body: bytes, content_type: str, code: int, text: str
) -> None:
    status, document, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, body, content_type=content_type)
    assert (status, document["kind"], document["code"]) == (code, "Status", code)
    assert text in document["message"]


async def test_unknown_and_repeated_fields_are_judged_as_asked(devcluster_server: Environment) -> None:
    body = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"1","k":"2"},"bogus":1}'
    status, refused, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, body, fieldValidation="Strict")
    assert (status, refused["reason"]) == (400, "BadRequest")
    assert 'duplicate field "data.k"' in refused["message"]
    status, created, warnings = await send(devcluster_server, "POST", CONFIGMAPS_PATH, body, fieldValidation="Warn")
    assert (status, created["data"]) == (201, {"k": "2"})
    assert warnings == ['299 - "duplicate field \\"data.k\\""', '299 - "unknown field \\"bogus\\""']
    await send(devcluster_server, "DELETE", f"{CONFIGMAPS_PATH}/a")
    status, _, warnings = await send(devcluster_server, "POST", CONFIGMAPS_PATH, body, fieldValidation="Ignore")
    assert (status, warnings) == (201, [])


@pytest.mark.parametrize(
    ("method", "path", "query", "text"),
    [
        ("POST", CONFIGMAPS_PATH, {"dryRun": "Some"}, "dryRun"),
        ("POST", CONFIGMAPS_PATH, {"fieldValidation": "Loose"}, '"Strict", "Warn", "Ignore"'),
        ("POST", CONFIGMAPS_PATH, {"fieldManager": "x" * 129}, "fieldManager"),
        ("DELETE", f"{CONFIGMAPS_PATH}/a", {"propagationPolicy": "Sideways"}, "propagationPolicy"),
    ],
)
async def test_wrong_options_are_refused_before_anything_happens(
    devcluster_server: Environment, method: str, path: str, query: dict[str, str], text: str
) -> None:
    body = configmap() if method == "POST" else None
    status, document, _ = await send(devcluster_server, method, path, body, **query)
    assert status == 422
    assert text in document["message"]
    assert devcluster_server.api.list(CONFIGMAPS, "default")[0] == []


async def test_dry_run_stores_nothing(devcluster_server: Environment) -> None:
    status, created, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, configmap(), dryRun="All")
    assert (status, created["metadata"]["name"]) == (201, "a")
    assert devcluster_server.api.list(CONFIGMAPS, "default")[0] == []
