"""The last form of a response: YAML, JSON for people, and what clients see of defects of the server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from aiohttp.typedefs import Handler

from trainmaster.devcluster.apiserver.filters.serialization import with_serialization
from trainmaster.devcluster.apiserver.http.responsewriters import json_response
from trainmaster.devcluster.apiserver.resources import PODS
from trainmaster.devcluster.testing.envtest import start_environment
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

ODD: JsonObject = {
    "texts": [
        "yes",
        "y",
        "1e3",
        "0x10",
        "1_0",
        "1:30",
        "2026-01-01T00:00:00Z",
        "null",
        "",
        "~",
        "a: b",
        "- a",
        "\u00e9\n",
    ],
    "numbers": [1, 1.5, -0.25, 1e300],
    "rest": [None, True, {}, [], [[1], {"a": []}]],
    "y": 1,
}


def _handler(body: JsonObject) -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return json_response(body)

    return handle


async def _sent(path: str, body: JsonObject, **headers: str) -> web.Response:
    response = await with_serialization(make_mocked_request("GET", path, headers=headers), _handler(body))
    assert isinstance(response, web.Response)
    return response


async def test_yaml_reads_as_the_same_json() -> None:
    shared = [1, 2]
    response = await _sent("/api/v1/pods/a", {**ODD, "one": shared, "two": shared}, Accept="application/yaml")
    assert response.headers["Content-Type"] == "application/yaml"
    assert isinstance(response.body, bytes)
    assert b"&" not in response.body
    assert load_yaml(response.body) == {**ODD, "one": shared, "two": shared}


async def test_what_is_no_resource_stays_json() -> None:
    assert (await _sent("/version", {}, Accept="application/yaml")).headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/api/v1/pods/a", {}, False),
        ("/api/v1/pods/a?pretty=true", {}, True),
        ("/api/v1/pods/a?pretty=", {}, True),
        ("/api/v1/pods/a?pretty=false", {"User-Agent": "curl/8.0"}, False),
        ("/api/v1/pods/a", {"User-Agent": "curl/8.0"}, True),
        ("/api/v1/pods/a", {"User-Agent": "kubectl/v1.33"}, False),
    ],
)
async def test_people_get_lines(path: str, headers: dict[str, str], expected: bool) -> None:
    body = (await _sent(path, {"a": {"b": 1}}, **headers)).body
    assert isinstance(body, bytes)
    assert orjson.loads(body) == {"a": {"b": 1}}
    assert (b"\n" in body) is expected


_PATH = "/api/v1/namespaces/default/pods/p/log"


class _Defective:
    def __init__(self, *, halfway: bool) -> None:
        self._halfway = halfway

    async def read(self, **_: Any) -> AsyncIterator[bytes]:
        if not self._halfway:
            raise RuntimeError("secret detail")
        return self._break()

    async def _break(self) -> AsyncIterator[bytes]:
        yield b"begun\n"
        raise RuntimeError("secret detail")


@pytest.mark.parametrize("halfway", [False, True])
async def test_a_defect_is_logged_and_its_details_stay_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, halfway: bool
) -> None:
    """Halfway through an answer the client must not take what it has for the whole: the connection breaks."""
    async with (
        start_environment(tmp_path, log_source=_Defective(halfway=halfway)) as server,
        server.session() as session,
    ):
        spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
        await server.api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, namespace="default")
        with caplog.at_level(logging.ERROR):
            if halfway:
                with pytest.raises(aiohttp.ClientError):
                    async with session.get(_PATH) as response:
                        await response.read()
            else:
                async with session.get(_PATH) as response:
                    document = await response.json()
                assert (response.status, document["reason"]) == (500, "InternalError")
                assert "secret" not in document["message"]
        async with session.get("/healthz") as response:
            assert await response.text() == "ok", "other requests go on"
    assert "RuntimeError: secret detail" in caplog.text
