"""Watch streams over HTTPS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from trainmaster.devcluster.apiserver.registry.generic import PatchType
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.apiserver.server import ServerTiming
from trainmaster.devcluster.testing.envtest import Environment, start_environment

_LIST = "/api/v1/namespaces/default/configmaps"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


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


async def _label(server: Environment, name: str, **labels: str) -> None:
    patch = {"metadata": {"labels": labels}}
    await server.api.patch(CONFIGMAPS, "default", name, patch, patch_type=PatchType.MERGE)


async def test_a_watch_starts_with_what_there_is_and_goes_on(devcluster_server: Environment) -> None:
    await _create(devcluster_server, "a")
    async with _watch(devcluster_server) as stream:
        assert (await stream.next())[1]["metadata"]["name"] == "a"
        await _create(devcluster_server, "b")
        kind, obj = await stream.next()
        assert (kind, obj["metadata"]["name"], obj["kind"]) == ("ADDED", "b", "ConfigMap")
        await _label(devcluster_server, "b", x="y")
        assert (await stream.next())[0] == "MODIFIED"
        await devcluster_server.api.delete(CONFIGMAPS, "default", "b")
        kind, obj = await stream.next()
        assert (kind, obj["metadata"]["resourceVersion"]) == ("DELETED", str(devcluster_server.api.revision))


async def test_headers_come_before_the_first_event(devcluster_server: Environment) -> None:
    """A client that waits for the headers of a quiet watch would otherwise take the server for dead."""
    async with asyncio.timeout(5), _watch(devcluster_server, resourceVersion=str(devcluster_server.api.revision)):
        pass


async def test_a_watch_from_a_version_shows_only_what_follows(devcluster_server: Environment) -> None:
    created = await _create(devcluster_server, "a")
    await _create(devcluster_server, "b")
    async with _watch(devcluster_server, resourceVersion=created["metadata"]["resourceVersion"]) as stream:
        assert (await stream.next())[1]["metadata"]["name"] == "b"


async def test_selectors_turn_changes_into_arrivals_and_departures(devcluster_server: Environment) -> None:
    await _create(devcluster_server, "a", team="red")
    async with _watch(devcluster_server, labelSelector="team=red") as stream:
        assert (await stream.next())[0] == "ADDED"
        await _label(devcluster_server, "a", team="blue")
        assert (await stream.next())[0] == "DELETED"
        await _label(devcluster_server, "a", team="red")
        assert (await stream.next())[0] == "ADDED"


async def test_a_watch_of_one_object(devcluster_server: Environment) -> None:
    await _create(devcluster_server, "a")
    await _create(devcluster_server, "b")
    async with _watch(devcluster_server, fieldSelector="metadata.name=b", timeoutSeconds="1") as stream:
        assert (await stream.next())[1]["metadata"]["name"] == "b"


async def test_the_timeout_ends_the_stream_cleanly(devcluster_server: Environment) -> None:
    async with _watch(devcluster_server, timeoutSeconds="1") as stream:
        assert await stream.ended()


async def test_the_end_of_the_initial_events_is_marked(devcluster_server: Environment) -> None:
    """KEP-3157: the bookmark with the annotation lets a client replace its store without a list."""
    await _create(devcluster_server, "a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with _watch(devcluster_server, **query) as stream:
        assert (await stream.next())[0] == "ADDED"
        kind, obj = await stream.next()
        assert (kind, obj["kind"]) == ("BOOKMARK", "ConfigMap")
        assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert obj["metadata"]["resourceVersion"] == str(devcluster_server.api.revision)
        await _create(devcluster_server, "b")
        assert (await stream.next())[0] == "ADDED"


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"resourceVersionMatch": "NotOlderThan"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
    ],
)
async def test_contradictory_options_are_refused(devcluster_server: Environment, query: dict[str, str]) -> None:
    async with (
        devcluster_server.session() as session,
        session.get(_LIST, params={"watch": "1", **query}) as response,
    ):
        assert (response.status, (await response.json())["reason"]) == (422, "Invalid")


async def test_bookmarks_move_a_quiet_watch_forward(tmp_path: Path) -> None:
    async with start_environment(tmp_path, timing=ServerTiming(bookmark_interval=0.01)) as server:
        await _create(server, "other")
        query = {"allowWatchBookmarks": "true", "labelSelector": "none=such"}
        async with _watch(server, resourceVersion="1", **query) as stream:
            kind, obj = await stream.next()
    assert (kind, obj["metadata"]["resourceVersion"]) == ("BOOKMARK", str(server.api.revision))


async def test_a_forgotten_version_is_an_error_event(tmp_path: Path) -> None:
    async with start_environment(tmp_path, history=2) as server:
        for name in "abcd":
            await _create(server, name)
        async with _watch(server, resourceVersion="1") as stream:
            kind, status = await stream.next()
            assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
            assert await stream.ended()


async def test_tables_describe_their_columns_once(devcluster_server: Environment) -> None:
    await _create(devcluster_server, "a")
    await _create(devcluster_server, "b")
    async with _watch(devcluster_server, accept=_TABLE) as stream:
        (_, first), (_, second) = await stream.next(), await stream.next()
    assert (first["kind"], second["kind"]) == ("Table", "Table")
    assert first["columnDefinitions"][0]["name"] == "Name"
    assert second["columnDefinitions"] is None
    assert second["rows"][0]["cells"][0] == "b"


async def test_a_stopping_server_ends_its_watches(tmp_path: Path) -> None:
    async with start_environment(tmp_path) as server, _watch(server) as stream:
        await _create(server, "a")
        await stream.next()
        async with asyncio.timeout(5):
            stopping = asyncio.create_task(server.server.stop())
            assert await stream.ended()
            await stopping


async def test_a_watch_whose_client_left_is_forgotten(devcluster_server: Environment) -> None:
    async with _watch(devcluster_server) as stream:
        await _create(devcluster_server, "a")
        await stream.next()
        assert len(devcluster_server.api._watches) == 1
    async with asyncio.timeout(5):
        while devcluster_server.api._watches:
            await asyncio.sleep(0.01)


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
            async with asyncio.timeout(20):
                while len(seen) < len(names):
                    name = orjson.loads(await response.content.readline())["object"]["metadata"]["name"]
                    if name.startswith("burst-"):
                        seen.append(name)
    assert seen == names


async def test_present_objects_are_not_shown_to_a_client_that_has_seen_newer_ones(
    devcluster_server: Environment,
) -> None:
    await _create(devcluster_server, "a")
    query = {"watch": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    async with (
        devcluster_server.session() as session,
        session.get(_LIST, params={**query, "resourceVersion": "1000000"}) as response,
    ):
        document = await response.json()
    assert (response.status, document["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
