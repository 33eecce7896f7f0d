"""Watch streams over HTTPS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from support.commands import TIMEOUT, eventually
from support.devcluster.envtest import Environment, start_environment

from trainmaster.devcluster.apiserver.resources import CONFIGMAPS
from trainmaster.devcluster.apiserver.server import ServerTiming

_LIST = "/api/v1/namespaces/default/configmaps"


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
