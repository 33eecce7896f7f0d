"""Requests through proxies: tunnels to https servers, whole URLs for http servers, and what goes wrong."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from support.authorities import Authority
from support.oddrequests import OBJECT, open_connections

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.config import RestConfig, Token
from trainmaster.controller.kube.rest.errors import CertificateRejected, NotConnected, TransportError
from trainmaster.controller.kube.rest.resources import PODS

Serve: TypeAlias = Callable[[ssl.SSLContext], Awaitable[Any]]

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nServer: proxy\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Proxy:
    """A proxy that says what a test tells it to, and leads every tunnel to one server."""

    def __init__(self, target: str, *, answer: bytes) -> None:
        self._target = target.rpartition("://")[2]
        self._answer = answer
        self.url = ""
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self._answer)
            if self._target:
                host, _, port = self._target.rpartition(":")
                upstream, sink = await asyncio.open_connection(host, int(port))
                await asyncio.gather(self._pump(reader, sink), self._pump(upstream, writer))
        except (OSError, EOFError):
            pass  # the client has closed the connection
        finally:
            writer.close()

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(2**16):
            sink.write(chunk)
        sink.close()


@asynccontextmanager
async def proxy(
    target: str = "", *, answer: bytes = ESTABLISHED, context: ssl.SSLContext | None = None
) -> AsyncIterator[Proxy]:
    serving = Proxy(target, answer=answer)
    listener = await asyncio.start_server(serving.serve, "127.0.0.1", 0, ssl=context)
    serving.url = f"http{'s' if context else ''}://me:pass%20word@127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener:
        yield serving


def client(config: RestConfig, clock: Any) -> KubeClient:
    return KubeClient(config, user_agent="test", clock=clock, tries=1)


@pytest.mark.parametrize(
    "answer", [ESTABLISHED, b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"]
)
@pytest.mark.parametrize("tls", [False, True])
async def test_a_tunnel_leads_to_https(clock: Any, tmp_path: Path, serve: Serve, answer: bytes, *, tls: bool) -> None:
    """Also through a proxy that speaks TLS itself: TLS within TLS. It learns the server's name and its own password."""
    authority = Authority()
    context = authority.server_context(tmp_path)
    server = await serve(context)
    server.on("list", *[server.reply(200, OBJECT)] * 2)
    server.on("watch", server.stream({"type": "ADDED", "object": OBJECT}, then="hang"))
    async with proxy(server.url, answer=answer, context=context if tls else None) as between:
        trusting = ssl.create_default_context(cadata=authority.pem.decode())
        token = Token("for-the-server")
        config = RestConfig(server="https://server:6443/", ssl_context=trusting, proxy=between.url, credentials=token)
        async with client(config, clock) as sent:
            assert [await sent.get(PODS, "ns", "a") for _ in range(2)] == [OBJECT, OBJECT]
            async with sent.watch(PODS, resource_version="5", timeout_seconds=300) as events:
                assert [await anext(aiter(events))][0].object == OBJECT
            assert open_connections("request") == 1
    assert (
        between.heads
        == [b"CONNECT server:6443 HTTP/1.1\r\nHost: server:6443\r\nProxy-Authorization: Basic bWU6cGFzcyB3b3Jk\r\n\r\n"]
        * 2
    )


async def test_an_http_server_is_asked_for_by_its_whole_url(clock: Any) -> None:
    async with proxy(answer=OK) as between:
        config = RestConfig(server="http://api.example.com/prefix", proxy=between.url)
        async with client(config, clock) as sent:
            assert await sent.get(PODS, "ns", "a") == {}
    assert between.heads[0].startswith(
        b"GET http://api.example.com/prefix/api/v1/namespaces/ns/pods/a HTTP/1.1\r\nHost: api.example.com\r\n"
        b"Proxy-Authorization: Basic bWU6cGFzcyB3b3Jk\r\n"
    )


@pytest.mark.parametrize("tls", [False, True])
async def test_the_certificate_of_the_server_is_checked_behind_a_proxy(
    clock: Any, tmp_path: Path, serve: Serve, *, tls: bool
) -> None:
    server = await serve(Authority().server_context(tmp_path))
    known = Authority("another")
    async with proxy(server.url, context=known.server_context(tmp_path) if tls else None) as between:
        trusting = ssl.create_default_context(cadata=known.pem.decode())
        config = RestConfig(server="https://server:6443", ssl_context=trusting, proxy=between.url)
        async with client(config, clock) as sent:
            with pytest.raises(CertificateRejected, match="the certificate of https://server:6443 was not accepted"):
                await sent.get(PODS, "ns", "a")
    assert open_connections("request") == 0


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", r"no connection to the proxy http://127\.0\.0\.1:\d+ \(.*closed.*\); check proxy-url"),
        (b"SSH-2.0\r\n", r"no connection to the proxy .*not HTTP/1\.1.*; check proxy-url"),
        (ESTABLISHED, r"no connection to https://server:6443 \(.*\); check the server address"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nforbidden",
         r"the proxy http://127\.0\.0\.1:\d+ refused to connect: 403 Forbidden; check proxy-url"),
        (ESTABLISHED + b"garbage",
         r"no connection to the proxy .* \(it sent more than its answer to CONNECT\); check proxy-url"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\ngarbage",
         r"no connection to the proxy .* \(it sent more than its answer to CONNECT\); check proxy-url"),
    ],
)  # fmt: skip
async def test_a_proxy_that_opens_no_tunnel(clock: Any, answer: bytes, text: str) -> None:
    async with (
        proxy(answer=answer) as between,
        client(RestConfig(server="https://server:6443", proxy=between.url), clock) as sent,
    ):
        with pytest.raises(NotConnected, match=text):
            await sent.get(PODS, "ns", "a")
    assert open_connections("request") == 0


async def test_a_proxy_that_breaks_off_an_answer(clock: Any) -> None:
    async with (
        proxy(answer=b"") as between,
        client(RestConfig(server="http://api.example.com", proxy=between.url), clock) as sent,
    ):
        with pytest.raises(TransportError, match=r"the proxy .* closed the connection without an answer"):
            await sent.get(PODS, "ns", "a")
