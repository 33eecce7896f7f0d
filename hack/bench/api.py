"""The clients of the benchmark: whoever creates TrainJobs, watches, and plays the JobSet controller.

It is as thin as can be, because it shares the cores with what it measures, and knows nothing of the client that it
measures.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, Self, TypeVar

import aiohttp
import orjson

from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.runtime.jsontree import JsonObject

AT_ONCE: Final = 32
"""Requests in flight; more only wait in the server."""

USER_AGENT: Final = "load-generator"
MERGE_PATCH: Final = "application/merge-patch+json"

_REQUEST_TIMEOUT = 60.0

T = TypeVar("T")


class BenchmarkFailed(Exception):
    """The benchmark cannot go on; the message says why and what to look at."""


class Api:
    """One API server; an async context manager."""

    def __init__(self, access: RestConfig) -> None:
        self._access = access
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._access.ssl_context or True),
            headers={"User-Agent": USER_AGENT, **await self._access.headers()},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_REQUEST_TIMEOUT),
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        body: JsonObject | None = None,
        *,
        content_type: str = "application/json",
        accept: Iterable[int] = (200, 201),
    ) -> JsonObject:
        """Send a request and return the answer; what is not accepted ends the benchmark."""
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": content_type}
        async with asyncio.timeout(_REQUEST_TIMEOUT):
            async with self._session.request(
                method,
                self._access.server + path,
                data=data,
                headers=headers,
                server_hostname=self._access.server_hostname,
                proxy=self._access.proxy,
            ) as response:
                content = await response.read()
        if response.status not in accept:
            text = content[:500].decode("utf-8", "replace")
            raise BenchmarkFailed(f"{method} {path} was answered with {response.status}: {text}")
        answer: JsonObject = orjson.loads(content) if content[:1] == b"{" else {}
        return answer

    @asynccontextmanager
    async def watching(self, path: str, see: Callable[[str, JsonObject], object]) -> AsyncIterator[asyncio.Task[None]]:
        """Have the events of a collection seen, from now on, while the block runs."""
        listed = await self.send("GET", f"{path}?limit=1")
        url = f"{self._access.server}{path}?watch=true&resourceVersion={listed['metadata']['resourceVersion']}"
        response = await self._session.get(url, server_hostname=self._access.server_hostname, proxy=self._access.proxy)
        reading = asyncio.create_task(_read(response, see), name=f"watch of {path}")
        try:
            yield reading
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            response.close()


async def for_all(items: Iterable[T], work: Callable[[T], Awaitable[object]], *, at_once: int = AT_ONCE) -> None:
    """Do the work for all items, so many at once."""
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await work(item)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(worker())


async def _read(response: aiohttp.ClientResponse, see: Callable[[str, JsonObject], object]) -> None:
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            event = orjson.loads(line)
            see(event["type"], event["object"])
    raise BenchmarkFailed("the server ended a watch of the benchmark; run it again with fewer jobs")
