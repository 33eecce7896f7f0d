"""GET and LIST over HTTPS: consistency, pages, shapes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.apiserver.server import ServerTiming
from trainmaster.devcluster.testing.envtest import Environment, start_environment

_LIST = "/api/v1/namespaces/default/configmaps"


async def _fill(server: Environment, count: int) -> None:
    for number in range(count):
        labels = {"parity": "even" if number % 2 == 0 else "odd"}
        obj = {"metadata": {"name": f"c{number:04}", "labels": labels}, "data": {"n": str(number)}}
        await server.api.create(CONFIGMAPS, obj, namespace="default")


async def _get(server: Environment, path: str, *, accept: str = "application/json", **query: str) -> tuple[int, Any]:
    async with (
        server.session() as session,
        session.get(path, params=query, headers={"Accept": accept}) as response,
    ):
        return response.status, await response.json()


def _names(document: Any) -> list[str]:
    return [item["metadata"]["name"] for item in document["items"]]


async def test_a_list_has_its_own_kind_and_the_current_version(devcluster_server: Environment) -> None:
    await _fill(devcluster_server, 2)
    status, document = await _get(devcluster_server, _LIST)
    assert (status, document["kind"], document["apiVersion"]) == (200, "ConfigMapList", "v1")
    assert document["metadata"] == {"resourceVersion": str(devcluster_server.api.revision)}
    assert _names(document) == ["c0000", "c0001"]


async def test_an_empty_list_is_not_null(devcluster_server: Environment) -> None:
    assert (await _get(devcluster_server, _LIST))[1]["items"] == []


async def test_selectors_narrow_a_list(devcluster_server: Environment) -> None:
    await _fill(devcluster_server, 4)
    _, even = await _get(devcluster_server, _LIST, labelSelector="parity in (even, none)")
    assert _names(even) == ["c0000", "c0002"]
    _, one = await _get(devcluster_server, "/api/v1/configmaps", fieldSelector="metadata.name=c0001")
    assert _names(one) == ["c0001"]


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        ({"labelSelector": "a in"}, 400, "labelSelector"),
        ({"fieldSelector": "spec.colour=red"}, 400, "is not a known field selector"),
        ({"limit": "-1"}, 400, "limit"),
        ({"limit": "1" * 5000}, 400, "limit"),
        ({"continue": "nonsense"}, 400, "continue"),
        ({"continue": "eyJ2IjoxfQ"}, 400, "continue"),
        ({"resourceVersion": "abc"}, 422, "resourceVersion"),
        ({"resourceVersionMatch": "Exact"}, 422, "resourceVersionMatch is forbidden"),
        ({"resourceVersionMatch": "Newest", "resourceVersion": "1"}, 422, "supported values"),
        ({"watch": "perhaps"}, 400, "watch"),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
    ],
)
async def test_wrong_parameters_are_named(
    devcluster_server: Environment, query: dict[str, str], code: int, text: str
) -> None:
    status, document = await _get(devcluster_server, _LIST, **query)
    assert (status, document["kind"]) == (code, "Status")
    assert text in document["message"]


async def test_pages_show_one_state_although_objects_come_and_go(devcluster_server: Environment) -> None:
    await _fill(devcluster_server, 5)
    _, first = await _get(devcluster_server, _LIST, limit="2")
    assert first["metadata"]["remainingItemCount"] == 3
    await devcluster_server.api.delete(CONFIGMAPS, "default", "c0003")
    token = first["metadata"]["continue"]
    _, second = await _get(devcluster_server, _LIST, limit="2", **{"continue": token})
    _, third = await _get(devcluster_server, _LIST, limit="2", **{"continue": second["metadata"]["continue"]})
    assert [_names(page) for page in (first, second, third)] == [["c0000", "c0001"], ["c0002", "c0003"], ["c0004"]]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert "continue" not in third["metadata"]


async def test_a_list_with_selectors_does_not_count_what_remains(devcluster_server: Environment) -> None:
    await _fill(devcluster_server, 4)
    _, page = await _get(devcluster_server, _LIST, limit="1", labelSelector="parity=even")
    assert "continue" in page["metadata"]
    assert "remainingItemCount" not in page["metadata"]


async def test_an_old_token_expires_with_one_that_goes_on(devcluster_server: Environment) -> None:
    """Only so many unfinished lists are remembered; the client of a forgotten one may accept a seam."""
    await _fill(devcluster_server, 3)
    _, page = await _get(devcluster_server, _LIST, limit="1")
    for number in range(20):
        await _get(devcluster_server, _LIST, limit="1", labelSelector=f"other!=n{number}")
    token = page["metadata"]["continue"]
    status, expired = await _get(devcluster_server, _LIST, limit="1", **{"continue": token})
    assert (status, expired["reason"]) == (410, "Expired")
    fresh = expired["metadata"]["continue"]
    _, rest = await _get(devcluster_server, _LIST, **{"continue": fresh})
    assert _names(rest) == ["c0001", "c0002"]


async def test_a_state_that_is_not_reached_yet_is_waited_for(devcluster_server: Environment) -> None:
    wanted = str(devcluster_server.api.revision + 1)
    reading = asyncio.create_task(_get(devcluster_server, _LIST, resourceVersion=wanted))
    await asyncio.sleep(0)
    await _fill(devcluster_server, 1)
    status, document = await reading
    assert (status, _names(document)) == (200, ["c0000"])


async def test_a_state_that_is_never_reached_times_out(tmp_path: Path) -> None:
    async with start_environment(tmp_path, timing=ServerTiming(freshness_wait=0.01)) as server:
        status, document = await _get(server, _LIST, resourceVersion="999999")
    assert (status, document["reason"]) == (504, "Timeout")
    assert "Too large resource version: 999999" in document["message"]
    assert document["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_an_exact_version_is_served_or_expired(devcluster_server: Environment) -> None:
    now = str(devcluster_server.api.revision)
    exactly = {"resourceVersionMatch": "Exact"}
    assert (await _get(devcluster_server, _LIST, resourceVersion=now, **exactly))[0] == 200
    await _fill(devcluster_server, 1)
    status, document = await _get(devcluster_server, _LIST, resourceVersion=now, **exactly)
    assert (status, document["reason"]) == (410, "Expired")


@pytest.mark.parametrize("accept", ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"])
async def test_a_long_list_is_complete(devcluster_server: Environment, accept: str) -> None:
    """Long lists are written in pieces: the joints must not lose or double a comma."""
    await _fill(devcluster_server, 1203)
    _, document = await _get(devcluster_server, _LIST, accept=accept)
    members = document.get("rows") or document["items"]
    assert len(members) == 1203


async def test_tables(devcluster_server: Environment) -> None:
    await _fill(devcluster_server, 1)
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    _, document = await _get(devcluster_server, _LIST, accept=table)
    assert (document["kind"], document["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert document["columnDefinitions"][0]["name"] == "Name"
    (row,) = document["rows"]
    assert len(row["cells"]) == len(document["columnDefinitions"])
    assert row["cells"][0] == "c0000"
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert "data" not in row["object"]
    _, single = await _get(devcluster_server, f"{_LIST}/c0000", accept=table, includeObject="Object")
    assert single["rows"][0]["object"]["data"] == {"n": "0"}
    _, bare = await _get(devcluster_server, _LIST, accept=table, includeObject="None")
    assert "object" not in bare["rows"][0]
    assert (await _get(devcluster_server, _LIST, accept=table, includeObject="Everything"))[0] == 400


async def test_metadata_only(devcluster_server: Environment) -> None:
    await _fill(devcluster_server, 1)
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    _, document = await _get(devcluster_server, _LIST, accept=accept)
    assert document["kind"] == "PartialObjectMetadataList"
    assert set(document["items"][0]) == {"kind", "apiVersion", "metadata"}


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/namespaces/default/nothings", 404),
        ("GET", "/api/v1/namespaces/default/namespaces", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/missing", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/a/status", 404),
        ("GET", "/api/v1/configmaps/a", 405),
        ("PUT", "/api/v1/namespaces/default/configmaps", 405),
        ("POST", "/api/v1/namespaces/default/configmaps/a", 405),
        ("POST", "/api/v1/configmaps", 405),
        ("OPTIONS", "/api/v1/namespaces/default/configmaps", 405),
        ("POST", "/api/v1/namespaces/default/pods/p/exec", 501),
        ("GET", "/api/v1/namespaces/default/pods/p/portforward", 501),
        ("GET", "/api/v1/nodes/n/proxy/metrics", 501),
        ("PUT", "/apis/batch/v1/namespaces/default/jobs/j/scale", 404),  # no cluster has that
    ],
)
async def test_what_is_not_served(devcluster_server: Environment, method: str, path: str, code: int) -> None:
    async with devcluster_server.session() as session, session.request(method, path) as response:
        assert response.status == code
        if response.content_type == "application/json":
            assert (await response.json())["code"] == code
        else:
            assert await response.text() == "404 page not found\n"
