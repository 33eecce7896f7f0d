"""GET and LIST over HTTPS: consistency, pages, shapes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.testing.envtest import Environment

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


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        ({"limit": "-1"}, 400, "limit"),
        ({"limit": "1" * 5000}, 400, "limit"),
        ({"continue": "eyJ2IjoxfQ"}, 400, "continue"),
        ({"resourceVersion": "abc"}, 422, "resourceVersion"),
        ({"watch": "perhaps"}, 400, "watch"),
    ],
)
async def test_wrong_parameters_are_named(
    devcluster_server: Environment, query: dict[str, str], code: int, text: str
) -> None:
    status, document = await _get(devcluster_server, _LIST, **query)
    assert (status, document["kind"]) == (code, "Status")
    assert text in document["message"]


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


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/namespaces/default/namespaces", 404),
        ("GET", "/api/v1/configmaps/a", 405),
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
