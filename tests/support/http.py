"""A server of the manager on a free port, without TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web

from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.server.server import Server, ServerOptions


@asynccontextmanager
async def listening(
    app: web.Application, address: str = "127.0.0.1:0", *, purpose: str = "tests"
) -> AsyncIterator[int]:
    """Serve an application; yields the port."""
    async with Server(address, ServerOptions(purpose=purpose), clock=SystemClock()).listening(app) as (_, port):
        yield port


async def get(port: int, path: str) -> tuple[int, str, str]:
    """Return the status, the text and the content type of a path."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/{path}") as response:
        return response.status, await response.text(), response.headers["Content-Type"]
