"""Service accounts over HTTP and their tokens; reviews are answered and never stored."""

from collections.abc import Mapping
from typing import Any

import pytest
from support.apiserver import AS_ME, call, grant
from support.devcluster.envtest import Environment

from trainmaster.devcluster.apiserver.registry.generic import DeleteOptions
from trainmaster.devcluster.apiserver.resources import PODS, SERVICE_ACCOUNTS
from trainmaster.runtime.jsontree import JsonObject

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


async def _review(server: Environment, group: str, plural: str, spec: Any) -> tuple[int, Any]:
    async with (
        server.session() as session,
        session.post(f"/apis/{group}.k8s.io/v1/{plural}", json={"spec": spec}) as response,
    ):
        return response.status, await response.json()


async def test_the_token_of_the_cluster_is_known_and_no_other(devcluster_server: Environment) -> None:
    known = await _review(devcluster_server, "authentication", "tokenreviews", {"token": devcluster_server.token})
    other = await _review(devcluster_server, "authentication", "tokenreviews", {"token": "other"})
    assert known[1]["status"]["user"]["groups"] == ["system:masters", "system:authenticated"]
    assert other[1]["status"]["authenticated"] is False
    status, review = await _review(devcluster_server, "authentication", "selfsubjectreviews", None)
    assert (status, review["status"]["userInfo"]["username"]) == (201, "trainmaster-admin")


@pytest.mark.parametrize(
    ("plural", "spec", "code"),
    [
        ("selfsubjectaccessreviews", {}, 422),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": {"verb": "x"}, "nonResourceAttributes": {"verb": "x"}},
            422,
        ),
        ("subjectaccessreviews", {"resourceAttributes": {"verb": "x"}}, 422),
        ("selfsubjectrulesreviews", {}, 422),
        ("selfsubjectrulesreviews", ["x"], 400),
    ],
)
async def test_a_question_without_its_essential_part_is_refused(
    devcluster_server: Environment, plural: str, spec: Any, code: int
) -> None:
    assert (await _review(devcluster_server, "authorization", plural, spec))[0] == code


async def test_access_reviews_agree_with_enforcement(rbac_server: Environment) -> None:
    asked = {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"}}
    review = "/apis/authorization.k8s.io/v1/{}accessreviews"
    own, others = review.format("selfsubject"), review.format("subject")
    about_me = {**asked, "user": "system:serviceaccount:default:me"}

    async def allowed(path: str, spec: JsonObject, headers: Mapping[str, str] | None = None) -> bool:
        status, answer = await call(rbac_server, "POST", path, headers=headers, json={"spec": spec})
        assert status == 201, answer
        return bool(answer["status"]["allowed"])

    assert await allowed(own, asked)
    assert not await allowed(own, asked, AS_ME)
    assert not await allowed(others, about_me)
    await grant(rbac_server.api, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
    assert await allowed(own, asked, AS_ME)
    assert await allowed(others, about_me)
    assert not await allowed(others, {**asked, "groups": ["staff"]})
    assert await allowed(own, {"nonResourceAttributes": {"verb": "get", "path": "/version"}}, AS_ME)


async def test_a_local_review_asks_about_its_own_namespace(rbac_server: Environment) -> None:
    spec = {"user": "ann", "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "kubeflow"}}
    path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
    assert (await call(rbac_server, "POST", path, json={"spec": spec}))[0] == 400
    spec["resourceAttributes"]["namespace"] = "default"  # type: ignore[index]  # a literal of mixed types
    status, answer = await call(rbac_server, "POST", path, json={"spec": spec})
    assert (status, answer["status"]) == (201, {"allowed": False})


async def test_the_rules_of_a_user(rbac_server: Environment) -> None:
    await grant(rbac_server.api, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    _, answer = await call(rbac_server, "POST", path, headers=AS_ME, json={"spec": {"namespace": "default"}})
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]} in answer["status"]["resourceRules"]
    assert any("/version" in each["nonResourceURLs"] for each in answer["status"]["nonResourceRules"])
