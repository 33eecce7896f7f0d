"""GET over HTTPS: objects, lists, watches, version, health, discovery, and what writes share."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from support.apiserver import CONFIGMAPS_PATH, configmap, send
from support.commands import TIMEOUT, eventually
from support.devcluster.envtest import Environment, start_environment

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.apiserver.schema import RELEASE
from trainmaster.devcluster.apiserver.server import ServerTiming

_LIST = "/api/v1/namespaces/default/configmaps"


async def _fill(server: Environment, count: int) -> None:
    for number in range(count):
        labels = {"parity": "even" if number % 2 == 0 else "odd"}
        obj = {"metadata": {"name": f"c{number:04}", "labels": labels}, "data": {"n": str(number)}}
        await server.api.create(CONFIGMAPS, obj, namespace="default")


async def _get(server: Environment, path: str, *, accept: str = "application/json", **query: str) -> tuple[int, Any]:
    async with server.session() as session, session.get(path, params=query, headers={"Accept": accept}) as response:
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
    _, rest = await _get(devcluster_server, _LIST, **{"continue": expired["metadata"]["continue"]})
    assert _names(rest) == ["c0001", "c0002"]


async def test_a_state_that_is_not_reached_yet_is_waited_for(devcluster_server: Environment) -> None:
    wanted = str(devcluster_server.api.revision + 1)
    reading = asyncio.create_task(_get(devcluster_server, _LIST, resourceVersion=wanted))
    await asyncio.sleep(0)
    await _fill(devcluster_server, 1)
    status, document = await reading
    assert (status, _names(document)) == (200, ["c0000"])


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
        ("POST", "/api/v1/namespaces/default/pods/p/attach", 501),
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


@pytest.mark.parametrize(
    ("body", "content_type", "code", "text"),
    [
        (b'{"kind": "ConfigMap",}', "application/json", 400, "line 1 column"),
        (b"[1]", "application/json", 400, "must be an object, not an array"),
        (b"null", "application/json", 400, "must be an object, not null"),
        (b"a: [", "application/yaml", 400, "not valid YAML"),
        (b"{" * 100_000, "application/yaml", 400, "nested more than"),
        (b"[" * 100_000, "application/json", 400, "not valid JSON"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "application/json", 400, "nested more than 150 levels"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "application/yaml", 400, "nested more than 150 levels"),
        (b"k8s\x00", "application/vnd.kubernetes.protobuf", 415, "kubectl create -f"),
    ],
)
async def test_bodies_that_cannot_be_read(
    devcluster_server: Environment, body: bytes, content_type: str, code: int, text: str
) -> None:
    status, document, _ = await send(devcluster_server, "POST", CONFIGMAPS_PATH, body, content_type=content_type)
    assert (status, document["kind"], document["code"]) == (code, "Status", code)
    assert text in document["message"]


APPLY = "application/apply-patch+yaml"
PATH = f"{CONFIGMAPS_PATH}/a"


def entry(fields: Any, **changes: Any) -> dict[str, Any]:
    """An entry of managedFields with some fields."""
    known = {"manager": "odd", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z"}
    return {**known, "fieldsType": "FieldsV1", "fieldsV1": fields, **changes}


def nested(element: str, levels: int) -> dict[str, Any]:
    """A path of one element over and over."""
    fields: dict[str, Any] = {}
    for _ in range(levels):
        fields = {element: fields}
    return fields


NO_FIELDS: list[Any] = [None, 0, "x", [], {"f:data": 0}, {"f:data": None}, {"f:data": []}, {"": {}}]
ODD: list[Any] = [
    *(None, 0, "x", {}, [], [None], ["x"], [[]], [{}, {}], [{"manager": 1}]),
    *([entry(fields)] for fields in NO_FIELDS),
    *([entry({"f:data": {element: {}}})] for element in (".", "f:", "f:k", "k:", "k:{", "k:[]", "k:{}", 'k:{"a":{}}')),
    *([entry({"f:data": {element: {}}})] for element in ("v:", "v:x", "v:1e999", "i:0", "i:-1", "i:x", "x:y", "\x00")),
    *([entry({"f:data": {f"{kind}:{'[' * 300}{']' * 300}": {}}})] for kind in "kvf"),
    *([entry({"f:data": nested("f:k", levels)})] for levels in (1, 50, 140)),
    [entry({"f:metadata": {"f:managedFields": {}, "f:name": {}}, "f:nowhere": {"f:b": {}}, "f:data": {}})],
    *([entry({"f:data": {"f:k": {}}}, **{name: 7})] for name in ("manager", "operation", "apiVersion", "time")),
    [entry({"f:data": {"f:k": {}}}, operation="Apply", apiVersion="nowhere/v9", subresource="odd")],
    [entry({"f:data": {"f:k": {}}}, manager="m" * 5000, time="never")],
    [entry({"f:data": {"f:k": {}}}, manager=f"m{number}") for number in range(50)],
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: orjson.dumps(odd).decode()[:40])
async def test_managed_fields_of_any_shape_break_no_write(devcluster_server: Environment, odd: Any) -> None:
    server = devcluster_server
    _, created, _ = await send(server, "POST", CONFIGMAPS_PATH, configmap(k="v"))
    created["metadata"]["managedFields"] = odd
    status, answer, _ = await send(server, "PUT", PATH, {**created, "data": {"k": "w"}})
    assert status in (200, 400, 422), answer
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x", "l": "y"}}
    for data in ({"k": "x", "l": "y"}, {"k": "x"}):
        wanted["data"] = data
        body = orjson.dumps(wanted)
        query = {"fieldManager": "me", "force": "true"}
        status, applied, _ = await send(server, "PATCH", PATH, body, content_type=APPLY, **query)
        assert (status, applied["data"]["k"]) == (200, "x"), applied
    status, answer, _ = await send(server, "PUT", PATH, {**configmap(k="z"), "metadata": {"name": "a"}})
    assert (status, answer["data"]["k"]) == (200, "z")


_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def _get_path(server: Environment, path: str, **headers: str) -> tuple[aiohttp.ClientResponse, Any]:
    async with server.session() as session, session.get(path, headers=headers) as response:
        text = await response.text()
        return response, await response.json() if text.startswith("{") else text


async def _get_json(server: Environment, path: str) -> Any:
    response, document = await _get_path(server, path)
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
    assert (await _get_path(devcluster_server, "/apis/example.com/"))[0].status == 404


async def test_discovery_can_be_cached(devcluster_server: Environment) -> None:
    response, _ = await _get_path(devcluster_server, "/apis")
    etag = response.headers["ETag"]
    assert (await _get_path(devcluster_server, "/apis", **{"If-None-Match": etag}))[0].status == 304
    assert (await _get_path(devcluster_server, "/apis", Accept=_AGGREGATED, **{"If-None-Match": etag}))[0].status == 200


async def test_references_of_openapi_lead_somewhere_inside_the_document(devcluster_server: Environment) -> None:
    _, document = await _get_path(devcluster_server, "/openapi/v3/apis/batch/v1")
    references = set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(document)))
    assert references <= set(document["components"]["schemas"])
    assert len(references) > 50


@pytest.mark.parametrize("path", ["/openapi/v3/apis/nothing/v1", "/", "/apis/nothing.io", "/apis/batch/v9", "/api/v9"])
async def test_unknown_paths_are_plain_text(devcluster_server: Environment, path: str) -> None:
    response, text = await _get_path(devcluster_server, path)
    assert (response.status, text) == (404, "404 page not found\n")


async def test_the_version_is_that_of_the_schemas(devcluster_server: Environment) -> None:
    document = (await _get_path(devcluster_server, "/version"))[1]
    assert document["gitVersion"].startswith(f"{RELEASE}+")
    assert f"v{document['major']}.{document['minor']}." in RELEASE


class _Stream:
    """The events of one watch, read one after the other."""

    def __init__(self, content: Any) -> None:
        self._content = content

    async def next(self) -> tuple[str, Any]:
        line = await self._content.readline()
        assert line.endswith(b"\n"), "the stream ended"
        event = orjson.loads(line)
        return event["type"], event["object"]

    async def ended(self) -> bool:
        return not await self._content.readline()


@asynccontextmanager
async def _watch(
    server: Environment, path: str = _LIST, *, accept: str = "application/json", **query: str
) -> AsyncIterator[_Stream]:
    async with (
        server.session(read_bufsize=2**20) as session,
        session.get(path, params={"watch": "true", **query}, headers={"Accept": accept}) as response,
    ):
        assert response.status == 200
        yield _Stream(response.content)


async def _create(server: Environment, name: str, **labels: str) -> Any:
    obj = {"metadata": {"name": name, "labels": labels}}
    return await server.api.create(CONFIGMAPS, obj, namespace="default")


async def test_bookmarks_move_a_quiet_watch_forward(tmp_path: Path) -> None:
    async with start_environment(tmp_path, timing=ServerTiming(bookmark_interval=0.01)) as server:
        await _create(server, "other")
        query = {"allowWatchBookmarks": "true", "labelSelector": "none=such"}
        async with _watch(server, resourceVersion="1", **query) as stream:
            kind, obj = await stream.next()
    assert (kind, obj["metadata"]["resourceVersion"]) == ("BOOKMARK", str(server.api.revision))


async def test_a_stopping_server_ends_its_watches(tmp_path: Path) -> None:
    async with start_environment(tmp_path) as server, _watch(server) as stream:
        await _create(server, "a")
        await stream.next()
        async with asyncio.timeout(TIMEOUT):
            stopping = asyncio.create_task(server.server.stop())
            assert await stream.ended()
            await stopping


async def test_a_watch_whose_client_left_is_forgotten(devcluster_server: Environment) -> None:
    async with _watch(devcluster_server) as stream:
        await _create(devcluster_server, "a")
        await stream.next()
        assert len(devcluster_server.api._watches) == 1
    await eventually(lambda: not devcluster_server.api._watches)


async def test_events_that_come_together_arrive_each_on_its_line(devcluster_server: Environment) -> None:
    """They leave in one write, with other streams open, and none is lost or out of order."""
    names = [f"burst-{number:03}" for number in range(250)]
    async with devcluster_server.session() as session, AsyncExitStack() as others:
        for _ in range(20):
            await others.enter_async_context(session.get(_LIST, params={"watch": "1", "resourceVersion": "0"}))
        async with session.get(_LIST, params={"watch": "1", "resourceVersion": "0"}) as response:
            for name in names:
                made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
                await devcluster_server.api.create(CONFIGMAPS, made, namespace="default")
            seen: list[str] = []
            async with asyncio.timeout(TIMEOUT):
                while len(seen) < len(names):
                    name = orjson.loads(await response.content.readline())["object"]["metadata"]["name"]
                    if name.startswith("burst-"):
                        seen.append(name)
    assert seen == names


async def test_present_objects_are_not_shown_to_a_client_that_has_seen_newer_ones(tmp_path: Path) -> None:
    query = {"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    async with start_environment(tmp_path, timing=ServerTiming(freshness_wait=0.01)) as server:
        await _create(server, "a")
        async with (
            server.session() as session,
            session.get(_LIST, params={**query, "resourceVersion": "1000000"}) as response,
        ):
            document = await response.json()
    assert (response.status, document["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
