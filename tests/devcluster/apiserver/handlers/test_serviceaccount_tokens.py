"""Service accounts over HTTP: their tokens get in, are reviewed, and can be verified by others."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.apiserver.registry.generic import DeleteOptions
from trainmaster.devcluster.apiserver.resources import PODS, SERVICE_ACCOUNTS
from trainmaster.devcluster.testing.envtest import Environment

_ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}}
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"serviceAccountName": "me", "containers": [{"name": "c", "image": "i"}]},
}
_TOKEN = "/api/v1/namespaces/default/serviceaccounts/me/token"


@pytest.fixture
async def server(devcluster_server: Environment) -> Environment:
    await devcluster_server.api.create(SERVICE_ACCOUNTS, _ACCOUNT, namespace="default")
    return devcluster_server


async def _post(server: Environment, path: str, body: Any) -> tuple[int, Any]:
    async with server.session() as session, session.post(path, json=body) as response:
        return response.status, await response.json()


async def _token(server: Environment, **spec: Any) -> str:
    status, answer = await _post(server, _TOKEN, {"spec": spec})
    assert status == 201, answer
    assert (answer["kind"], answer["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    token: str = answer["status"]["token"]
    return token


async def _status_with(server: Environment, token: str, path: str = "/api/v1/pods") -> int:
    headers = {"Authorization": f"Bearer {token}"}
    async with server.session(headers=headers) as session, session.get(path) as response:
        return response.status


async def test_a_token_gets_in_until_its_account_is_gone(server: Environment) -> None:
    token = await _token(server)
    assert await _status_with(server, token) == 200
    assert await _status_with(server, await _token(server, audiences=["others"])) == 401
    await server.api.delete(SERVICE_ACCOUNTS, "default", "me")
    assert await _status_with(server, token) == 401
    assert (await _post(server, _TOKEN, {}))[0] == 404


async def test_who_am_i(server: Environment) -> None:
    headers = {"Authorization": f"Bearer {await _token(server)}"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with server.session(headers=headers) as session, session.post(path, json={}) as response:
        user = (await response.json())["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:me"
    assert "system:serviceaccounts:default" in user["groups"]
    assert user["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")


async def test_a_review_of_a_token_that_is_bound_to_a_pod(server: Environment) -> None:
    """What a server in the cluster does to know which pod reports to it."""
    await server.api.create(PODS, _POD, namespace="default")
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    token = await _token(server, audiences=["reports"], boundObjectRef=bound)
    review = {"spec": {"token": token, "audiences": ["reports"]}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    _, answer = await _post(server, path, review)
    assert answer["status"]["authenticated"] is True
    assert answer["status"]["audiences"] == ["reports"]
    assert answer["status"]["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    _, answer = await _post(server, path, {"spec": {"token": token}})
    assert answer["status"]["authenticated"] is False, "it is not for the API server"
    await server.api.delete(PODS, "default", "p", options=DeleteOptions(grace_seconds=0))
    _, answer = await _post(server, path, review)
    assert answer["status"]["authenticated"] is False
    assert answer["status"]["error"] == "[invalid bearer token, service account token has been invalidated]"


async def test_the_token_subresource_can_only_be_created(server: Environment) -> None:
    async with server.session() as session, session.get(_TOKEN) as response:
        assert response.status == 405


async def test_discovery_tells_of_the_subresource(server: Environment) -> None:
    async with server.session() as session, session.get("/api/v1") as response:
        (entry,) = [each for each in (await response.json())["resources"] if each["name"] == "serviceaccounts/token"]
    assert (entry["group"], entry["version"], entry["kind"]) == ("authentication.k8s.io", "v1", "TokenRequest")
    assert entry["verbs"] == ["create"]


async def test_others_find_the_keys_by_discovery(server: Environment) -> None:
    async with server.session() as session:
        async with session.get("/.well-known/openid-configuration") as response:
            configuration = await response.json()
        assert configuration["jwks_uri"] == f"{server.url}/openid/v1/jwks"
        assert configuration["issuer"] == "https://kubernetes.default.svc.cluster.local"
        async with session.get(configuration["jwks_uri"]) as response:
            assert response.content_type == "application/jwk-set+json"
            (key,) = (await response.json(content_type=None))["keys"]
        assert key["alg"] in configuration["id_token_signing_alg_values_supported"]
