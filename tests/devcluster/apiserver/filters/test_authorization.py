"""Nobody gets in without the token; the enforcement of roles, and acting as somebody else."""

import asyncio
import ssl

import pytest
from aiohttp.test_utils import make_mocked_request
from support.apiserver import AS_ME, call, grant
from support.commands import TIMEOUT
from support.devcluster.envtest import Environment
from yarl import URL

from trainmaster.devcluster.apiserver.auth.authorizer import Attributes
from trainmaster.devcluster.apiserver.filters.authentication import Authenticator
from trainmaster.devcluster.apiserver.filters.authorization import authorizer_attributes
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS

_PODS = "/api/v1/namespaces/default/pods"
_CONFIGMAP = "/api/v1/namespaces/default/configmaps/a"


async def test_an_account_may_do_what_its_roles_allow_and_no_more(rbac_server: Environment) -> None:
    token = rbac_server.tokens.create("default", "me", {})["status"]["token"]
    headers = {"Authorization": f"Bearer {token}"}
    status, answer = await call(rbac_server, "GET", _PODS, headers=headers)
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'pods is forbidden: User "system:serviceaccount:default:me" cannot list resource "pods" in API group "" '
        'in the namespace "default"'
    )
    assert answer["details"] == {"kind": "pods"}
    await grant(rbac_server.api, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
    assert (await call(rbac_server, "GET", _PODS, headers=headers))[0] == 200
    assert (await call(rbac_server, "GET", f"{_PODS}?watch=true", headers=headers))[0] == 403
    assert (await call(rbac_server, "GET", "/api/v1/pods", headers=headers))[0] == 403
    assert (await call(rbac_server, "GET", "/apis", headers=headers))[0] == 200, "everyone may discover"


async def test_an_apply_that_creates_needs_the_right_to_create(rbac_server: Environment) -> None:
    patching = {"verbs": ["patch"], "apiGroups": [""], "resources": ["configmaps"]}
    await grant(rbac_server.api, patching, user="ann")
    headers = {"Impersonate-User": "ann", "Content-Type": "application/apply-patch+yaml"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    path = f"{_CONFIGMAP}?fieldManager=x"
    status, answer = await call(rbac_server, "PATCH", path, headers=headers, json=body)
    assert status == 403
    assert "cannot create resource" in answer["message"]
    await rbac_server.api.create(CONFIGMAPS, body, namespace="default")
    assert (await call(rbac_server, "PATCH", path, headers=headers, json=body))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/metrics", Attributes(verb="get", path="/metrics")),
        ("GET", "/apis/batch/v1", Attributes(verb="get", path="/apis/batch/v1")),
        ("POST", "/x", Attributes(verb="create", path="/x")),
        ("DELETE", "/api/v1/nodes", Attributes(verb="deletecollection", version="v1", resource="nodes")),
        ("GET", "/api/v1/nodes?watch=1", Attributes(verb="watch", version="v1", resource="nodes")),
        (
            "GET",
            "/api/v1/namespaces/ns",
            Attributes(verb="get", version="v1", resource="namespaces", namespace="ns", name="ns"),
        ),
        (
            "GET",
            "/api/v1/namespaces/ns/pods?fieldSelector=metadata.name%3Dp",
            Attributes(verb="list", version="v1", resource="pods", namespace="ns", name="p"),
        ),
        (
            "POST",
            "/api/v1/namespaces/ns/serviceaccounts/me/token",
            Attributes(
                verb="create", version="v1", resource="serviceaccounts", subresource="token", namespace="ns", name="me"
            ),
        ),
    ],
)
def test_what_a_request_wants(method: str, path: str, expected: Attributes) -> None:
    assert authorizer_attributes(make_mocked_request(method, path)) == expected


async def test_who_is_impersonated(rbac_server: Environment) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    _, answer = await call(rbac_server, "POST", path, headers=AS_ME, json={})
    assert answer["status"]["userInfo"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    extra = {
        "Impersonate-User": "ann",
        "Impersonate-Group": "staff",
        "Impersonate-Uid": "7",
        "Impersonate-Extra-example.com%2fscope": "all",
    }
    _, answer = await call(rbac_server, "POST", path, headers=extra, json={})
    assert answer["status"]["userInfo"] == {
        "username": "ann",
        "uid": "7",
        "groups": ["staff", "system:authenticated"],
        "extra": {"example.com/scope": ["all"]},
    }


async def test_impersonation_needs_a_right_of_its_own(rbac_server: Environment) -> None:
    token = rbac_server.tokens.create("default", "me", {})["status"]["token"]
    headers = {"Authorization": f"Bearer {token}", "Impersonate-User": "ann"}
    status, answer = await call(rbac_server, "GET", _PODS, headers=headers)
    assert status == 403
    assert 'cannot impersonate resource "users" in API group "" at the cluster scope' in answer["message"]
    status, _ = await call(rbac_server, "GET", _PODS, headers={"Impersonate-Group": "system:masters"})
    assert status == 500, "a group without a user is not a user"


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic dXNlcjpwdw==", "Bearer", "Bearer t\u00f6ken"])
async def test_no_request_goes_without_the_token(devcluster_server: Environment, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with devcluster_server.session(headers=headers) as session:
        for method, path in (("GET", "/api/v1/pods"), ("GET", "/apis"), ("DELETE", "/api/v1/namespaces/default")):
            async with session.request(method, path) as response:
                assert response.status == 401
                assert (await response.json())["reason"] == "Unauthorized"
                assert response.headers["WWW-Authenticate"].startswith("Bearer")


async def raw(server: Environment, *lines: bytes) -> bytes:
    """Make a request of these lines, byte by byte as they are; returns the response."""
    url = URL(server.url)
    context = ssl.create_default_context(cafile=str(server.authority))
    reader, writer = await asyncio.open_connection(url.host, url.port, ssl=context)
    try:
        writer.write(b"\r\n".join((*lines, b"Host: localhost", b"Connection: close", b"", b"")))
        async with asyncio.timeout(TIMEOUT):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    "token", [b"\xff\xfe", b"\xed\xa0\x80", b"t\xc3\xb6ken", b"t\xf6ken", b"a.b\xff.c", b"a.\xc3\xa4.c"]
)
async def test_a_token_with_odd_bytes_is_refused_as_any_other(devcluster_server: Environment, token: bytes) -> None:
    for path in (b"/api/v1/pods", b"/healthz"):
        answer = await raw(devcluster_server, b"GET " + path + b" HTTP/1.1", b"Authorization: Bearer " + token)
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b'"reason":"Unauthorized"' in answer
        assert token not in answer


@pytest.mark.parametrize(
    "header",
    [
        b"Authorization: Bearer a\x00b",
        b"Authorization: Bearer a\rb",
        b"Authorization: Bearer x\nAuthorization: Bearer %s",
        b"Authorization: Bearer x\r\nAuthorization: Bearer %s",
        b"Authorization: Bearer x\r\n Bearer %s",
        b"Authorization: Bearer %s\x00",
        b"Authorization: Bearer %s,x",
        b"Authorization: Bearer %s %s",
        b"Authorization: Basic %s",
        b"Authorization: %s",
        b"Authorization : Bearer %s",
        b"X-Authorization: Bearer %s",
        b"Authorization:",
    ],
)
async def test_tricks_with_the_header_let_nobody_in(
    devcluster_server: Environment, header: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What is no HTTP is refused before anybody asks who it is from."""
    sent = header.replace(b"%s", devcluster_server.token.encode())
    answer = await raw(devcluster_server, b"GET /api/v1/pods HTTP/1.1", sent)
    assert answer.split(b" ")[1] in {b"400", b"401"}
    assert b"PodList" not in answer
    assert b"Traceback" not in answer
    assert devcluster_server.token not in caplog.text
    assert "Traceback" not in caplog.text


def test_an_empty_token_would_let_everyone_in(devcluster_server: Environment) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        Authenticator("", devcluster_server.tokens)
