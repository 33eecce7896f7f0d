"""A manager in this process that may not become ready, and its probes, asked as a kubelet asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from support.commands import eventually
from support.stack import QUIET

from trainmaster.controller.configuration import Configuration, Health
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.manager.manager import Manager
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, load_plugins


@dataclass(frozen=True)
class Probes:
    """The probes of a manager that runs, and what ends it."""

    port: int
    stop: asyncio.Event
    task: asyncio.Task[None]

    async def ask(self, path: str) -> tuple[int, str]:
        """Return status and text; 0 while nobody listens."""
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{self.port}/{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def until(self, path: str, *parts: str, status: int | None = None) -> str:
        """Ask until the text has some parts, and the answer a status; returns the text."""

        async def answer() -> tuple[str] | None:
            code, text = await self.ask(path)
            return (text,) if status in (None, code) and all(part in text for part in parts) else None

        (text,) = await eventually(answer)
        return str(text)


@asynccontextmanager
async def probed(
    access: RestConfig, configuration: Configuration = QUIET, framework: Framework | None = None
) -> AsyncIterator[Probes]:
    """Run a manager, with probes, while the block runs; its caches may not be filled when the block begins."""
    port, stop = free_port(), asyncio.Event()
    health = Health(health_probe_bind_address=f"127.0.0.1:{port}")
    running = Manager(
        access, configuration.model_copy(update={"health": health}), framework or Framework(load_plugins())
    )
    task = asyncio.create_task(running.run(stop))
    try:
        yield Probes(port, stop, task)
    finally:
        stop.set()
        await task
