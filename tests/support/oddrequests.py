"""Requests that are damaged, odd, or none at all, of a client about one object, and how connections break."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import orjson
from aiohttp import web
from support.series import value_of
from support.statusserver import NAMESPACE, REPORT

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.runtime.api.constants import status_path

PATIENCE = 0.3
"""Seconds for an answer. That there are answers at all is checked by their codes."""

HEADERS = (
    *("Content-Length", "Transfer-Encoding", "Content-Encoding", "Content-Type", "Expect", "Connection", "Upgrade"),
    *("Authorization", "Host", "Accept", "Cookie", "X-Whatever"),
)
VALUES = (
    *("", "0", "-1", "1", "65536", "65537", "99999999999999999999", "chunked", "chunked, chunked", "gzip", "br"),
    *("100-continue", "200-maybe", "close", "keep-alive", "websocket", "h2c", "text/html"),
    *("application/json; charset=x", "Bearer", "Bearer a.b.c", "Bearer é", "\x7f", "a" * 5000, "a=b; c", "*/*"),
)
METHODS = ("POST", "POST", "POST", "GET", "PUT", "HEAD", "CONNECT", "TRACE", "post", "P\x00ST")


PATHS = tuple(
    status_path(NAMESPACE, name)
    for name in [*["train"] * 8, "other", "%2e%2e", "%ff", "a%2Fb", "é", "{name}", "x" * 300]
)


def odd_body(random: Random) -> bytes:
    """A report that was damaged, or garbage."""
    if random.random() < 0.2:
        return random.randbytes(random.randrange(200))
    text = bytearray(orjson.dumps(REPORT))
    for _ in range(random.randrange(6)):
        text[random.randrange(len(text))] = random.choice(b'{}[]",:\\ \x00\xff0-9tfn')
    return bytes(text)


def odd_request(random: Random, token: str, *, paths: Sequence[str] = PATHS) -> bytes:
    """A request that was damaged, or garbage."""
    if random.random() < 0.1:
        return random.randbytes(random.randrange(1, 400))
    content = odd_body(random)
    path = random.choice(paths)
    names: dict[str, str] = {"Host": "status", "Content-Length": str(len(content))}
    if random.random() < 0.7:
        names["Authorization"] = f"Bearer {token}"
    for _ in range(random.randrange(3)):
        names[random.choice(HEADERS)] = random.choice(VALUES)
    lines = [f"{random.choice(METHODS)} {path}{random.choice(['', '?a=%zz', '#x'])} HTTP/1.{random.choice('0112')}"]
    lines += [f"{name}: {value}" for name, value in names.items()]
    return "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + content


async def answer_to(port: int, sent: bytes, *, tls: ssl.SSLContext | None = None) -> int | None:
    """Send bytes; returns the code of the first answer, None if there is none, since the server waits for more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            line = await reader.readline()
    except (ConnectionError, TimeoutError):
        return None
    finally:
        writer.transport.abort()
    return int(line.split()[1]) if line.startswith(b"HTTP/1.") else None


OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "ns"}}


async def reset(request: web.Request) -> web.StreamResponse:
    """Break the connection in place of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


WRITES: dict[str, Callable[[KubeClient], Awaitable[object]]] = {
    "POST": lambda client: client.create(CONFIGMAPS, OBJECT),
    "PUT": lambda client: client.update(CONFIGMAPS, OBJECT),
    "PATCH": lambda client: client.patch(CONFIGMAPS, "ns", "a", {"data": {}}),
    "an apply that may create": lambda client: client.apply(CONFIGMAPS, OBJECT, field_manager="trainer"),
    "DELETE": lambda client: client.delete(CONFIGMAPS, "ns", "a"),
}


def open_connections(pool: str) -> float | None:
    """Return how many connections of a pool are open."""
    return value_of("trainmaster_client_connections", {"pool": pool})


def abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once, unless it is closed already."""
    # Python 3.11 fails on one that is closed, if its close had to wait for unsent bytes; no attribute tells that.
    with contextlib.suppress(AttributeError):
        writer.transport.abort()
