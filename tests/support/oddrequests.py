"""Requests that are damaged, odd, or none at all."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from random import Random

import orjson
from support.statusserver import NAMESPACE, REPORT

from trainmaster.runtime.api.constants import status_path

PATIENCE = 0.3
"""Seconds for an answer. That there are answers at all is checked by their codes."""

HEADERS = (
    *("Content-Length", "Transfer-Encoding", "Content-Encoding", "Content-Type", "Expect", "Connection", "Upgrade"),
    *("Authorization", "Host", "Accept", "Cookie", "X-Whatever"),
)
VALUES = (
    *("", "0", "-1", "1", "65536", "65537", "99999999999999999999", "chunked", "chunked, chunked", "gzip", "br"),
    *(
        "100-continue",
        "200-maybe",
        "close",
        "keep-alive",
        "websocket",
        "h2c",
        "text/html",
        "application/json; charset=x",
    ),
    *("Bearer", "Bearer a.b.c", "Bearer é", "\x7f", "a" * 5000, "a=b; c", "*/*"),
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
