"""Nobody gets in without the token."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver.filters.authentication import Authenticator
from trainmaster.devcluster.testing.envtest import Environment


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic dXNlcjpwdw==", "Bearer", "Bearer t\u00f6ken"])
async def test_requests_without_the_token_are_refused(
    devcluster_server: Environment, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    async with devcluster_server.session(headers=headers) as session:
        for method, path in (("GET", "/api/v1/pods"), ("GET", "/apis"), ("DELETE", "/api/v1/namespaces/default")):
            async with session.request(method, path) as response:
                assert response.status == 401
                assert (await response.json())["reason"] == "Unauthorized"
                assert response.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_wrong_token_is_refused_even_where_none_is_needed(devcluster_server: Environment) -> None:
    async with (
        devcluster_server.session(headers={"Authorization": "Bearer wrong"}) as session,
        session.get("/healthz") as response,
    ):
        assert response.status == 401


def test_an_empty_token_would_let_everyone_in(devcluster_server: Environment) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        Authenticator("", devcluster_server.tokens)
