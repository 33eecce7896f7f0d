"""Whatever is sent, the status server answers something below 500, complains about nothing, and goes on."""

from __future__ import annotations

import asyncio
import logging
import random

import orjson
import pytest
from structlog.testing import capture_logs
from support.statusserver import NAMESPACE, REPORT, StatusClient, Trainers

from trainmaster.runtime.api.constants import status_path

ROUNDS = 600
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


def body(random: random.Random) -> bytes:
    """A report that was damaged, or garbage."""
    if random.random() < 0.2:
        return random.randbytes(random.randrange(200))
    text = bytearray(orjson.dumps(REPORT))
    for _ in range(random.randrange(6)):
        text[random.randrange(len(text))] = random.choice(b'{}[]",:\\ \x00\xff0-9tfn')
    return bytes(text)


def message(random: random.Random, token: str) -> bytes:
    """A request that was damaged, or garbage."""
    if random.random() < 0.1:
        return random.randbytes(random.randrange(1, 400))
    content = body(random)
    path = status_path(
        NAMESPACE, random.choice([*["train"] * 8, "other", "%2e%2e", "%ff", "a%2Fb", "é", "{name}", "x" * 300])
    )
    names: dict[str, str] = {"Host": "status", "Content-Length": str(len(content))}
    if random.random() < 0.7:
        names["Authorization"] = f"Bearer {token}"
    for _ in range(random.randrange(3)):
        names[random.choice(HEADERS)] = random.choice(VALUES)
    lines = [f"{random.choice(METHODS)} {path}{random.choice(['', '?a=%zz', '#x'])} HTTP/1.{random.choice('0112')}"]
    lines += [f"{name}: {value}" for name, value in names.items()]
    return "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + content


async def answer_to(port: int, sent: bytes) -> int | None:
    """Send bytes; returns the code of the first answer, None if there is none, since the server waits for more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            line = await reader.readline()
    except (ConnectionError, TimeoutError):
        return None
    finally:
        writer.close()
    return int(line.split()[1]) if line.startswith(b"HTTP/1.") else None


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_that_is_sent_is_an_error_of_ours(
    http: StatusClient, trainers: Trainers, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    token = await trainers.token("train", pod=await trainers.create("train"))
    random_ = random.Random(seed)
    codes: set[int | None] = set()
    with capture_logs() as logs, caplog.at_level(logging.WARNING):
        for _ in range(ROUNDS):
            sent = message(random_, token)
            code = await answer_to(http.port, sent)
            codes.add(code)
            assert code is None or code < 500, sent
            http.clock.pushed += 1
    assert {200, 403, 404, 422} <= codes
    assert not [log for log in logs if log["log_level"] in ("error", "critical") or "exc_info" in log]
    assert [record.getMessage() for record in caplog.records] == []
    http.clock.pushed += 60
    assert (await http.post("train", token)).code == 200
