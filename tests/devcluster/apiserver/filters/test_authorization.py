"""Enforcement of roles."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from support.apiserver import call, grant

from trainmaster.devcluster.apiserver.auth.authorizer import Attributes
from trainmaster.devcluster.apiserver.filters.authorization import authorizer_attributes
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.testing.envtest import Environment

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


async def test_the_administrator_may_do_everything(rbac_server: Environment) -> None:
    assert (await call(rbac_server, "GET", "/api/v1/nodes"))[0] == 200


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
