"""Nobody gets in without the token."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from support.commands import TIMEOUT
from yarl import URL

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
    "token",
    [b"\xff\xfe", b"\xed\xa0\x80", b"t\xc3\xb6ken", b"t\xf6ken", b"a.b\xff.c", b"a.\xc3\xa4.c"],
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


async def test_a_wrong_token_is_refused_even_where_none_is_needed(devcluster_server: Environment) -> None:
    async with (
        devcluster_server.session(headers={"Authorization": "Bearer wrong"}) as session,
        session.get("/healthz") as response,
    ):
        assert response.status == 401


def test_an_empty_token_would_let_everyone_in(devcluster_server: Environment) -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        Authenticator("", devcluster_server.tokens)
