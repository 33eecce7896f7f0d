"""What is confidential in a request, and that no refusal carries it on."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from aiohttp import web
from support.http import listening

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.confidential import confidential
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import ApiError, MalformedResponse, excerpt
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, SECRETS
from trainmaster.controller.kube.rest.watch import decode_event
from trainmaster.controller.server.authentication import review_token

SECRET = "an-opaque-token-0123"


@pytest.mark.guarantee("M-11")
@pytest.mark.parametrize(
    ("path", "body", "values"),
    [
        ("/api/v1/namespaces/team/secrets/a", {"data": {"a": SECRET, "b": f"{SECRET}-longer"}}, 2),
        ("/api/v1/namespaces/team/secrets", {"stringData": {"a": SECRET}, "type": "Opaque-and-long"}, 1),
        ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": SECRET, "audiences": ["somebody"]}}, 1),
        ("/api/v1/namespaces/team/configmaps/a", {"data": {"a": SECRET}}, 0),
        ("/api/v1/namespaces/team/secrets/a", {"data": {"a": "short", "b": 1}}, 0),
        ("/api/v1/namespaces/team/secrets/a", [SECRET], 0),
    ],
)
def test_values_of_secrets_and_tokens_are_confidential(path: str, body: Any, values: int) -> None:
    found = confidential(path, orjson.dumps(body))
    assert len(found) == values
    assert found == sorted(found, key=len, reverse=True)
    assert confidential(path, None) == []
    assert confidential(path, b"no JSON") == []


@pytest.mark.guarantee("M-11")
async def test_a_server_that_quotes_what_it_refuses_does_not_make_it_known() -> None:
    async def quote(request: web.Request) -> web.Response:
        message = f"refused: {(await request.read()).decode()}"
        status = {"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": message}
        return web.json_response(status, status=422)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", quote)
    metadata = {"name": "key", "namespace": "team"}
    async with (
        listening(app) as port,
        KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="tests") as client,
    ):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key": SECRET}}
        with pytest.raises(ApiError, match=r"\[redacted\]") as refused:
            await client.apply(SECRETS, secret, field_manager="tests")
        assert SECRET not in f"{refused.value} {refused.value.message} {refused.value.details}"
        with pytest.raises(ApiError, match=r"\[redacted\]") as refused:
            await review_token(client, SECRET)
        assert SECRET not in str(refused.value)
        other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": SECRET}}
        with pytest.raises(ApiError, match=SECRET):
            await client.create(CONFIGMAPS, other)


@pytest.mark.guarantee("M-11")
@pytest.mark.parametrize(
    "frame", [b'{"type":"ADDED","object":{"data":{"k":"hunter2"}', b'{"type":"X","object":{"a":"hunter2"}}']
)
def test_a_broken_frame_of_a_watch_is_not_quoted(frame: bytes) -> None:
    with pytest.raises(MalformedResponse) as broken:
        decode_event(frame)
    assert "hunter2" not in str(broken.value)
    assert f"{{...}}, {len(frame)} bytes" in str(broken.value)


@pytest.mark.guarantee("M-11")
def test_what_is_no_object_is_quoted() -> None:
    assert excerpt(b"  Bad\n Gateway ") == "Bad Gateway"
