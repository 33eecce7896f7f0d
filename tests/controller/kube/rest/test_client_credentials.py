"""Credentials of requests, and the guard of writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web
from support.requests import OBJECT, WRITES

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import NotLeading, Unauthorized
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS


class Changing:
    """Credentials of which the first are stale."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.tokens[0]}"}

    async def renew(self) -> bool:
        if len(self.tokens) == 1:
            return False
        self.tokens.pop(0)
        return True


async def test_stale_credentials_are_renewed_once(server: Any, clock: Any) -> None:
    refusal = server.status(401, "Unauthorized")
    server.on("list", refusal, server.reply(200, OBJECT), refusal)
    config = RestConfig(server=server.url, credentials=Changing("old", "new"))
    async with KubeClient(config, user_agent="test", clock=clock) as client:
        assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
        with pytest.raises(Unauthorized):
            await client.get(CONFIGMAPS, "ns", "a")
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new", "Bearer new"]


async def test_a_late_refusal_of_stale_credentials_finds_those_that_another_request_brought(
    server: Any, clock: Any
) -> None:
    """There is nothing left to renew then, and still no reason to fail."""
    renewed = asyncio.Event()

    async def refuse_late(request: web.Request) -> Any:
        await renewed.wait()
        return await server.status(401, "Unauthorized")(request)

    server.on("list", refuse_late, server.status(401, "Unauthorized"), *[server.reply(200, OBJECT)] * 2)
    config = RestConfig(server=server.url, credentials=Changing("old", "new"))
    async with KubeClient(config, user_agent="test", clock=clock) as client:
        late = asyncio.create_task(client.get(CONFIGMAPS, "ns", "a"))
        while not server.seen:
            await asyncio.sleep(0)
        assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
        renewed.set()
        assert await late == OBJECT


async def test_guard_is_asked_before_each_attempt_of_a_write(server: Any, clock: Any) -> None:
    """Whoever loses the lease while a request waits for its second try does not send it."""
    asked: list[int] = []

    def guard() -> None:
        asked.append(len(server.seen))
        if len(asked) == 2:
            raise NotLeading("the lease is lost")

    server.on("POST", server.status(429, "TooManyRequests", Retry_After="1"), server.reply(201, OBJECT))
    server.on("list", server.reply(200, OBJECT))
    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, guard=guard) as client:
        with pytest.raises(NotLeading):
            await client.create(CONFIGMAPS, OBJECT)
        assert asked == [0, 1]
        await client.get(CONFIGMAPS, "ns", "a")
    assert asked == [0, 1]
    assert [seen.method for seen in server.seen] == ["POST", "GET"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_guard_holds_every_write_back(server: Any, clock: Any, method: str) -> None:
    def guard() -> None:
        raise NotLeading("the lease is lost")

    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, guard=guard) as client:
        with pytest.raises(NotLeading):
            await WRITES[method](client)
        with pytest.raises(NotLeading):
            await client.raw(method, "/api/v1/namespaces/ns/configmaps")
    assert server.seen == []
    assert clock.slept == []


async def test_stale_credentials_of_a_watch_are_renewed(server: Any, clock: Any) -> None:
    server.on("watch", server.status(401, "Unauthorized"), server.stream())
    config = RestConfig(server=server.url, credentials=Changing("old", "new"))
    async with (
        KubeClient(config, user_agent="test", clock=clock) as client,
        client.watch(PODS, resource_version="5", timeout_seconds=300),
    ):
        pass
    assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]
