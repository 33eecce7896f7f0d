"""POST over HTTPS: formats, options, refusals."""

from __future__ import annotations

import pytest
from support.apiserver import CONFIGMAPS_PATH, send

from trainmaster.devcluster.testing.envtest import Environment


@pytest.mark.parametrize(
    ("body", "content_type", "code", "text"),
    [
        (b'{"kind": "ConfigMap",}', "application/json", 400, "line 1 column"),
        (b"[1]", "application/json", 400, "must be an object, not an array"),
        (b"null", "application/json", 400, "must be an object, not null"),
        (b"a: [", "application/yaml", 400, "not valid YAML"),
        (b"{" * 100_000, "application/yaml", 400, "nested more than"),
        (b"[" * 100_000, "application/json", 400, "not valid JSON"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "application/json", 400, "nested more than 150 levels"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "application/yaml", 400, "nested more than 150 levels"),
        (b"k8s\x00", "application/vnd.kubernetes.protobuf", 415, "kubectl create -f"),
    ],
)
async def test_bodies_that_cannot_be_read(
    devcluster_server: Environment, body: bytes, content_type: str, code: int, text: str
) -> None:
    status, document, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, body, content_type=content_type)
    assert (status, document["kind"], document["code"]) == (code, "Status", code)
    assert text in document["message"]
