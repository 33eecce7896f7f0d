"""Connections of a client: for how long they are waited for, used again, and when they are closed."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from support.authorities import Authority
from support.requests import OBJECT, open_connections, reset

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import KubeError, NotConnected, NotLeading, RequestTimeout
from trainmaster.controller.kube.rest.http1.transport import Http1Transport
from trainmaster.controller.kube.rest.proxied_transport import ProxiedTransport
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS


async def never(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response()


async def test_refused_connection(clock: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    config = RestConfig(server=f"http://127.0.0.1:{port}")
    async with KubeClient(config, user_agent="test", clock=clock) as client:
        with pytest.raises(NotConnected, match=f"127.0.0.1:{port}"):
            await client.create(CONFIGMAPS, OBJECT)
    assert len(clock.slept) == 4


@pytest.mark.guarantee("P-36")
async def test_leaving_a_watch_closes_its_connection(server: Any, client: KubeClient, until: Any) -> None:
    server.on("watch", server.stream(then="hang"))
    async with client.watch(PODS, resource_version="5", timeout_seconds=300):
        await until(lambda: server.open_streams == 1)
    await until(lambda: server.open_streams == 0)
    assert server.seen[0].query == {
        "watch": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "300",
        "allowWatchBookmarks": "true",
    }


@pytest.mark.guarantee("T-4")
async def test_connections_of_watches_do_not_starve_requests(server: Any, clock: Any, until: Any) -> None:
    config = RestConfig(server=server.url)
    server.on("list", server.reply(200, OBJECT))
    async with (
        KubeClient(config, user_agent="test", clock=clock, connections=1) as client,
        asyncio.TaskGroup() as tasks,
    ):

        async def hold() -> None:
            async with client.watch(PODS, resource_version="5", timeout_seconds=300):
                await asyncio.sleep(3600)

        held = [tasks.create_task(hold()) for _ in range(3)]
        await until(lambda: server.open_streams == 3)
        assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
        for task in held:
            task.cancel()


@pytest.mark.guarantee("P-4")
@pytest.mark.parametrize("answer", ["none", "begun", "begun refusal"])
async def test_an_answer_that_is_not_complete_in_time_is_given_up(
    server: Any, clock: Any, until: Any, answer: str
) -> None:
    """The limit covers the whole of a request, not only its beginning; also of a refusal."""
    answers = {
        "none": never,
        "begun": server.stream(b'{"kind":', then="hang"),
        "begun refusal": server.stream(b"<html>", then="hang", status=502),
    }
    server.on("list", answers[answer])
    async with KubeClient(RestConfig(server=server.url), user_agent="test", clock=clock, timeout=5, tries=1) as client:
        request = asyncio.create_task(client.get(PODS, "ns", "a"))
        await until(lambda: server.open_streams if answer != "none" else server.seen)
        clock.step(5)
        with pytest.raises(RequestTimeout, match=r"GET http://.*/pods/a: no complete answer within 5 s"):
            await request


@pytest.mark.guarantee("P-4")
async def test_watch_that_does_not_open_times_out(server: Any, client: KubeClient, clock: Any, until: Any) -> None:
    server.on("watch", never)
    opening = asyncio.create_task(client.watch(PODS, resource_version="5", timeout_seconds=300).__aenter__())
    await until(lambda: server.seen)
    clock.step(5)
    with pytest.raises(RequestTimeout):
        await opening


@pytest.mark.guarantee("P-36")
async def test_every_answer_gives_its_connection_back(server: Any, clock: Any) -> None:
    """With one connection only, whatever becomes of the answers, the next request finds it or a new one."""
    answers = [
        server.reply(200, OBJECT),
        server.status(404, "NotFound"),
        server.reply(200, b"<html>"),
        server.stream(b"x" * 2000),
        server.stream(b"x" * 2**21, status=500),
        reset,
    ]
    config = RestConfig(server=server.url)
    async with KubeClient(
        config, user_agent="test", clock=clock, connections=1, tries=1, timeout=2.0, response_limit=1000
    ) as client:
        for answer in answers:
            server.on("list", answer, server.reply(200, OBJECT))
            with suppress(KubeError):
                await client.get(PODS, "ns", "a")
            assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
            assert open_connections("request") == 1
    assert open_connections("request") == 0


@pytest.mark.guarantee("P-36", "L-12")
async def test_leaving_the_client_closes_what_was_given_up(tmp_path: Path) -> None:
    """A server that does not answer, not even to the end of TLS, holds no connection of a client that is gone."""
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    asked, over = asyncio.Semaphore(0), asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        cast("asyncio.Transport", writer.transport).pause_reading()
        asked.release()
        await over.wait()
        writer.transport.abort()

    listener = await asyncio.start_server(say_nothing, "127.0.0.1", 0, ssl=authority.server_context(tmp_path))
    config = RestConfig(server=f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}", ssl_context=trusting)
    async with listener:
        async with KubeClient(config, user_agent="test") as client:
            request = asyncio.create_task(client.get(PODS, "ns", "a"))
            watch = asyncio.create_task(client.stream("/").__aenter__())
            await asked.acquire()
            await asked.acquire()
            request.cancel()
            watch.cancel()
            await asyncio.wait((request, watch))
        left = open_connections("request"), open_connections("watch")
        over.set()
    assert left == (0, 0)


@pytest.mark.parametrize("transport", [Http1Transport, ProxiedTransport])
async def test_a_write_that_waited_for_a_connection_asks_the_guard_before_it_leaves(
    transport: type[Http1Transport | ProxiedTransport], server: Any, clock: Any, until: Any
) -> None:
    """The lease may be lost while a write waits behind another one."""
    leads, answers = True, asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await answers.wait()
        return web.json_response(OBJECT, status=201)

    def guard() -> None:
        if not leads:
            raise NotLeading("the lease is lost")

    server.on("POST", slow, slow)
    config = RestConfig(server=server.url)
    sent = transport(config, clock=clock, connections=1)
    async with KubeClient(config, user_agent="test", clock=clock, transport=sent, guard=guard) as client:
        first = asyncio.create_task(client.create(CONFIGMAPS, OBJECT))
        await until(lambda: len(server.seen) == 1)
        second = asyncio.create_task(client.create(CONFIGMAPS, OBJECT))
        await asyncio.sleep(0)
        leads = False
        answers.set()
        assert await first == OBJECT
        with pytest.raises(NotLeading):
            await second
        leads = True
        assert await client.create(CONFIGMAPS, OBJECT) == OBJECT, "its turn was not lost"
    assert len(server.seen) == 2
