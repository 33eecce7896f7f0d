"""Reviews are answered and never stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.apiserver import AS_ME, call, grant

from trainmaster.devcluster.testing.envtest import Environment
from trainmaster.runtime.jsontree import JsonObject


async def _review(server: Environment, group: str, plural: str, spec: Any) -> tuple[int, Any]:
    async with (
        server.session() as session,
        session.post(f"/apis/{group}.k8s.io/v1/{plural}", json={"spec": spec}) as response,
    ):
        return response.status, await response.json()


async def test_access_is_granted(devcluster_server: Environment) -> None:
    spec = {"resourceAttributes": {"verb": "create", "resource": "pods"}}
    status, review = await _review(devcluster_server, "authorization", "selfsubjectaccessreviews", spec)
    assert (status, review["status"]["allowed"]) == (201, True)
    assert review["kind"] == "SelfSubjectAccessReview"


async def test_the_token_of_the_cluster_is_known_and_no_other(devcluster_server: Environment) -> None:
    known = await _review(devcluster_server, "authentication", "tokenreviews", {"token": devcluster_server.token})
    other = await _review(devcluster_server, "authentication", "tokenreviews", {"token": "other"})
    assert known[1]["status"]["user"]["groups"] == ["system:masters", "system:authenticated"]
    assert other[1]["status"]["authenticated"] is False


async def test_who_am_i(devcluster_server: Environment) -> None:
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


async def test_reviews_can_only_be_created(devcluster_server: Environment) -> None:
    async with (
        devcluster_server.session() as session,
        session.get("/apis/authentication.k8s.io/v1/tokenreviews") as response,
    ):
        assert response.status == 405


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
