"""Enforcement of roles, and acting as somebody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from trainmaster.devcluster.apiserver.auth.authorizer import Attributes
from trainmaster.devcluster.apiserver.filters.authorization import authorizer_attributes
from trainmaster.devcluster.apiserver.registry.generic import Api
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from trainmaster.devcluster.testing.envtest import Environment, start_environment
from trainmaster.runtime.jsontree import JsonObject

_AS_ME = {"Impersonate-User": "system:serviceaccount:default:me"}
_PODS = "/api/v1/namespaces/default/pods"
_CONFIGMAP = "/api/v1/namespaces/default/configmaps/a"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Environment]:
    async with start_environment(tmp_path, rbac=True) as served:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}}
        await served.api.create(SERVICE_ACCOUNTS, account, namespace="default")
        yield served


async def _grant(api: Api, *rules: JsonObject, name: str = "r", user: str = "") -> None:
    version, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    role = {"apiVersion": version, "kind": "Role", "metadata": {"name": name}, "rules": list(rules)}
    await api.create(ROLES, role, namespace="default")
    subject: JsonObject = {"kind": "ServiceAccount", "name": "me", "namespace": "default"}
    if user:
        subject = {"kind": "User", "name": user, "apiGroup": group}
    binding = {
        "apiVersion": version,
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "subjects": [subject],
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
    }
    await api.create(ROLE_BINDINGS, binding, namespace="default")


async def _call(
    server: Environment, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
) -> tuple[int, Any]:
    given = {"Authorization": f"Bearer {server.token}", **(headers or {})}
    async with server.session(headers=given) as session, session.request(method, path, **options) as response:
        return response.status, await response.json(content_type=None)


async def test_an_account_may_do_what_its_roles_allow_and_no_more(server: Environment) -> None:
    token = server.tokens.create("default", "me", {})["status"]["token"]
    headers = {"Authorization": f"Bearer {token}"}
    status, answer = await _call(server, "GET", _PODS, headers=headers)
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'pods is forbidden: User "system:serviceaccount:default:me" cannot list resource "pods" in API group "" '
        'in the namespace "default"'
    )
    assert answer["details"] == {"kind": "pods"}
    await _grant(server.api, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
    assert (await _call(server, "GET", _PODS, headers=headers))[0] == 200
    assert (await _call(server, "GET", f"{_PODS}?watch=true", headers=headers))[0] == 403
    assert (await _call(server, "GET", "/api/v1/pods", headers=headers))[0] == 403
    assert (await _call(server, "GET", "/apis", headers=headers))[0] == 200, "everyone may discover"


async def test_the_administrator_may_do_everything(server: Environment) -> None:
    assert (await _call(server, "GET", "/api/v1/nodes"))[0] == 200


async def test_impersonation_takes_the_rights_of_the_other(server: Environment) -> None:
    assert (await _call(server, "GET", _PODS, headers=_AS_ME))[0] == 403
    await _grant(server.api, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
    assert (await _call(server, "GET", _PODS, headers=_AS_ME))[0] == 200


async def test_who_is_impersonated(server: Environment) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    _, answer = await _call(server, "POST", path, headers=_AS_ME, json={})
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
    _, answer = await _call(server, "POST", path, headers=extra, json={})
    assert answer["status"]["userInfo"] == {
        "username": "ann",
        "uid": "7",
        "groups": ["staff", "system:authenticated"],
        "extra": {"example.com/scope": ["all"]},
    }


async def test_impersonation_needs_a_right_of_its_own(server: Environment) -> None:
    token = server.tokens.create("default", "me", {})["status"]["token"]
    headers = {"Authorization": f"Bearer {token}", "Impersonate-User": "ann"}
    status, answer = await _call(server, "GET", _PODS, headers=headers)
    assert status == 403
    assert 'cannot impersonate resource "users" in API group "" at the cluster scope' in answer["message"]
    status, _ = await _call(server, "GET", _PODS, headers={"Impersonate-Group": "system:masters"})
    assert status == 500, "a group without a user is not a user"


async def test_an_apply_that_creates_needs_the_right_to_create(server: Environment) -> None:
    patching = {"verbs": ["patch"], "apiGroups": [""], "resources": ["configmaps"]}
    await _grant(server.api, patching, user="ann")
    headers = {"Impersonate-User": "ann", "Content-Type": "application/apply-patch+yaml"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    path = f"{_CONFIGMAP}?fieldManager=x"
    status, answer = await _call(server, "PATCH", path, headers=headers, json=body)
    assert status == 403
    assert "cannot create resource" in answer["message"]
    await server.api.create(CONFIGMAPS, body, namespace="default")
    assert (await _call(server, "PATCH", path, headers=headers, json=body))[0] == 200


async def test_access_reviews_agree_with_enforcement(server: Environment) -> None:
    asked = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"}}
    review = "/apis/authorization.k8s.io/v1/{}accessreviews"
    own, others = review.format("selfsubject"), review.format("subject")
    about_me = {**asked, "user": "system:serviceaccount:default:me"}

    async def allowed(path: str, spec: JsonObject, headers: Mapping[str, str] | None = None) -> bool:
        status, answer = await _call(server, "POST", path, headers=headers, json={"spec": spec})
        assert status == 201, answer
        return bool(answer["status"]["allowed"])

    assert await allowed(own, asked)
    assert not await allowed(own, asked, _AS_ME)
    assert not await allowed(others, about_me)
    await _grant(server.api, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
    assert await allowed(own, asked, _AS_ME)
    assert await allowed(others, about_me)
    assert not await allowed(others, {**asked, "groups": ["staff"]})
    assert await allowed(own, {"nonResourceAttributes": {"verb": "get", "path": "/version"}}, _AS_ME)


async def test_a_local_review_asks_about_its_own_namespace(server: Environment) -> None:
    spec = {"user": "ann", "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "kubeflow"}}
    path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
    assert (await _call(server, "POST", path, json={"spec": spec}))[0] == 400
    spec["resourceAttributes"]["namespace"] = "default"  # type: ignore[index]  # a literal of mixed types
    status, answer = await _call(server, "POST", path, json={"spec": spec})
    assert (status, answer["status"]) == (201, {"allowed": False})


async def test_the_rules_of_a_user(server: Environment) -> None:
    await _grant(server.api, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    _, answer = await _call(server, "POST", path, headers=_AS_ME, json={"spec": {"namespace": "default"}})
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]} in answer["status"]["resourceRules"]
    assert any("/version" in each["nonResourceURLs"] for each in answer["status"]["nonResourceRules"])


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
