"""Reviews are answered and never stored."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.devcluster.testing.envtest import Environment


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
