"""Version, health, discovery and OpenAPI over HTTPS."""

from __future__ import annotations

import re
from typing import Any

import aiohttp
import pytest

from trainmaster.devcluster.apiserver.schema import RELEASE
from trainmaster.devcluster.testing.envtest import Environment

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def _get(server: Environment, path: str, **headers: str) -> tuple[aiohttp.ClientResponse, Any]:
    async with server.session() as session, session.get(path, headers=headers) as response:
        text = await response.text()
        return response, await response.json() if text.startswith("{") else text


async def _get_json(server: Environment, path: str) -> Any:
    response, document = await _get(server, path)
    assert response.status == 200, path
    return document


async def test_health_and_version_are_open_to_everyone(devcluster_server: Environment) -> None:
    async with devcluster_server.session(headers={}) as session:
        for path in ("/healthz", "/livez", "/readyz", "/version", "/version/"):
            async with session.get(path) as response:
                assert response.status == 200
        async with session.get("/readyz?verbose") as response:
            assert (await response.text()).endswith("readyz check passed\n")


async def test_paths_may_end_with_a_slash(devcluster_server: Environment) -> None:
    """Clients that were generated from the OpenAPI document ask in this way."""
    for path in ("/version", "/api", "/apis", "/api/v1", "/apis/batch", "/apis/batch/v1"):
        assert await _get_json(devcluster_server, f"{path}/") == await _get_json(devcluster_server, path)
    assert (await _get(devcluster_server, "/apis/example.com/"))[0].status == 404


async def test_discovery_can_be_cached(devcluster_server: Environment) -> None:
    response, _ = await _get(devcluster_server, "/apis")
    etag = response.headers["ETag"]
    assert (await _get(devcluster_server, "/apis", **{"If-None-Match": etag}))[0].status == 304
    assert (await _get(devcluster_server, "/apis", Accept=_AGGREGATED, **{"If-None-Match": etag}))[0].status == 200


async def test_references_of_openapi_lead_somewhere_inside_the_document(devcluster_server: Environment) -> None:
    _, document = await _get(devcluster_server, "/openapi/v3/apis/batch/v1")
    references = set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(document)))
    assert references <= set(document["components"]["schemas"])
    assert len(references) > 50


@pytest.mark.parametrize("path", ["/openapi/v3/apis/nothing/v1", "/", "/apis/nothing.io", "/apis/batch/v9", "/api/v9"])
async def test_unknown_paths_are_plain_text(devcluster_server: Environment, path: str) -> None:
    response, text = await _get(devcluster_server, path)
    assert (response.status, text) == (404, "404 page not found\n")


async def test_the_version_is_that_of_the_schemas(devcluster_server: Environment) -> None:
    document = (await _get(devcluster_server, "/version"))[1]
    assert document["gitVersion"].startswith(f"{RELEASE}+")
    assert f"v{document['major']}.{document['minor']}." in RELEASE
