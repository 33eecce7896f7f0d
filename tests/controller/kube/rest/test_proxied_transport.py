"""Requests through a proxy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.authorities import Authority
from support.requests import OBJECT, open_connections

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.kube.rest.errors import NotConnected
from trainmaster.controller.kube.rest.resources import CONFIGMAPS


class Proxy:
    """A proxy that knows CONNECT, and refuses if it is told to."""

    def __init__(self, *, refusing: bool) -> None:
        self._refusing = refusing
        self.asked: list[str] = []
        self.url = ""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
        self.asked.append(line)
        if self._refusing:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        host, _, port = line.split()[1].rpartition(":")
        from_server, to_server = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pass_on(reader, to_server), _pass_on(from_server, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(2**16):
            writer.write(data)
    except OSError:
        pass  # one side has closed, so the other does
    finally:
        writer.close()


@asynccontextmanager
async def proxy(*, refusing: bool = False) -> AsyncIterator[Proxy]:
    made = Proxy(refusing=refusing)
    listener = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener:
        yield made


async def test_tls_through_a_proxy(
    clock: Any, tmp_path: Path, serve: Callable[[ssl.SSLContext], Awaitable[Any]]
) -> None:
    authority = Authority()
    server = await serve(authority.server_context(tmp_path))
    server.on("list", server.reply(200, OBJECT), server.reply(200, OBJECT))
    context = ssl.create_default_context(cadata=authority.pem.decode())
    async with proxy() as between:
        config = RestConfig(server=server.url, ssl_context=context, proxy=between.url)
        async with KubeClient(config, user_agent="test", clock=clock) as client:
            for _ in range(2):
                assert await client.get(CONFIGMAPS, "ns", "a") == OBJECT
            assert open_connections("request") == 1
        assert open_connections("request") == 0
    assert between.asked == [f"CONNECT {server.url.removeprefix('https://')} HTTP/1.1"]


async def test_proxy_that_refuses(clock: Any) -> None:
    async with proxy(refusing=True) as between:
        config = RestConfig(server="https://api.example.com", proxy=between.url)
        async with KubeClient(config, user_agent="test", clock=clock, tries=1) as client:
            with pytest.raises(NotConnected, match=r"refused to connect: 407 .*; check proxy-url"):
                await client.get(CONFIGMAPS, "ns", "a")
