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


async def test_aggregated_discovery_names_its_type(devcluster_server: Environment) -> None:
    """Without the parameters in the Content-Type, clients take the document for the older form."""
    response, document = await _get(devcluster_server, "/apis", Accept=f"{_AGGREGATED},application/json")
    assert response.headers["Content-Type"] == _AGGREGATED
    assert (document["kind"], document["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    jobs = next(
        resource
        for item in document["items"]
        if item["metadata"]["name"] == "batch"
        for resource in item["versions"][0]["resources"]
    )
    assert (jobs["resource"], jobs["scope"], jobs["singularResource"]) == ("jobs", "Namespaced", "job")
    assert jobs["responseKind"] == {"group": "batch", "version": "v1", "kind": "Job"}
    assert [each["subresource"] for each in jobs["subresources"]] == ["status"]


async def test_core_discovery_has_a_group_without_a_name(devcluster_server: Environment) -> None:
    _, document = await _get(devcluster_server, "/api", Accept=_AGGREGATED)
    (item,) = document["items"]
    assert item["metadata"] == {}
    names = {resource["resource"] for resource in item["versions"][0]["resources"]}
    assert {"pods", "namespaces", "configmaps"} <= names


async def test_paths_may_end_with_a_slash(devcluster_server: Environment) -> None:
    """Clients that were generated from the OpenAPI document ask in this way."""
    for path in ("/version", "/api", "/apis", "/api/v1", "/apis/batch", "/apis/batch/v1"):
        assert await _get_json(devcluster_server, f"{path}/") == await _get_json(devcluster_server, path)
    assert (await _get(devcluster_server, "/apis/example.com/"))[0].status == 404


async def test_older_discovery(devcluster_server: Environment) -> None:
    assert (await _get(devcluster_server, "/api"))[1]["versions"] == ["v1"]
    _, groups = await _get(devcluster_server, "/apis")
    assert groups["kind"] == "APIGroupList"
    assert "authorization.k8s.io" in {group["name"] for group in groups["groups"]}
    _, group = await _get(devcluster_server, "/apis/batch")
    assert group["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    _, core = await _get(devcluster_server, "/api/v1")
    assert core["groupVersion"] == "v1"
    names = {resource["name"] for resource in core["resources"]}
    assert {"pods", "pods/log", "pods/status", "namespaces/finalize"} <= names
    for path in ("/apis/nothing.io", "/apis/batch/v9", "/api/v9"):
        response, text = await _get(devcluster_server, path)
        assert (response.status, text) == (404, "404 page not found\n")


async def test_discovery_can_be_cached(devcluster_server: Environment) -> None:
    response, _ = await _get(devcluster_server, "/apis")
    etag = response.headers["ETag"]
    assert (await _get(devcluster_server, "/apis", **{"If-None-Match": etag}))[0].status == 304
    assert (await _get(devcluster_server, "/apis", Accept=_AGGREGATED, **{"If-None-Match": etag}))[0].status == 200


async def test_openapi_lets_the_server_validate_and_explains_fields(devcluster_server: Environment) -> None:
    _, index = await _get(devcluster_server, "/openapi/v3")
    address = index["paths"]["apis/batch/v1"]["serverRelativeURL"]
    assert re.fullmatch(r"/openapi/v3/apis/batch/v1\?hash=[0-9A-F]{64}", address)
    _, document = await _get(devcluster_server, address)
    operation = document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]["patch"]
    assert operation["x-kubernetes-group-version-kind"] == {"group": "batch", "version": "v1", "kind": "Job"}
    assert "fieldValidation" in {parameter["name"] for parameter in operation["parameters"]}
    schemas = document["components"]["schemas"]
    assert {"group": "batch", "version": "v1", "kind": "Job"} in schemas["io.k8s.api.batch.v1.Job"][
        "x-kubernetes-group-version-kind"
    ]
    references = set(re.findall(r'"\$ref": ?"#/components/schemas/([^"]+)"', str(document).replace("'", '"')))
    assert references <= set(schemas), "every reference must lead somewhere inside the document"
    assert len(references) > 50


@pytest.mark.parametrize("path", ["/openapi/v3/apis/nothing/v1", "/nothing", "/"])
async def test_unknown_paths_are_plain_text(devcluster_server: Environment, path: str) -> None:
    response, text = await _get(devcluster_server, path)
    assert (response.status, text) == (404, "404 page not found\n")


async def test_the_version_is_that_of_the_schemas(devcluster_server: Environment) -> None:
    document = (await _get(devcluster_server, "/version"))[1]
    assert document["gitVersion"].startswith(f"{RELEASE}+")
    assert f"v{document['major']}.{document['minor']}." in RELEASE
