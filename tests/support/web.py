"""What a manager serves: a server on a free port, probes, the web page, history and pages for debugging."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from support.commands import eventually
from support.stack import QUIET, manager

from trainmaster.controller.configuration import Configuration, Health, Metrics, MetricsAuth, complete
from trainmaster.controller.configuration.types import History, Web
from trainmaster.controller.kube.clock import Clock, SystemClock
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.controller.manager.manager import Manager
from trainmaster.controller.manager.parts import Setup
from trainmaster.controller.server.server import Server, ServerOptions
from trainmaster.devcluster.listener import free_port
from trainmaster.runtime.framework import Framework, load_plugins


class Served:
    """The metrics server of a manager."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def get(self, path: str, *, token: str = "", header: str = "Authorization") -> tuple[int, Any]:
        """Return status and content."""
        headers = {header: f"Bearer {token}"} if token else {}
        async with aiohttp.request("GET", f"{self.url}{path}", headers=headers) as answer:
            return answer.status, await (answer.json() if "json" in answer.content_type else answer.text())


@asynccontextmanager
async def served(
    access: RestConfig, *, auth: bool = False, clock: Clock | None = None, **sections: Any
) -> AsyncIterator[Served]:
    """Run a manager that serves its metrics, with or without authentication, and sections of its configuration."""
    port = free_port()
    metrics = Metrics(bind_address=f"127.0.0.1:{port}", secure_serving=False, auth=MetricsAuth(enabled=auth))
    configuration = QUIET.model_copy(update={"metrics": metrics, **sections})
    assert not complete(configuration).problems
    async with manager(access, configuration=configuration, clock=clock):
        yield Served(f"http://127.0.0.1:{port}")


@asynccontextmanager
async def web_page(
    access: RestConfig, file: Path | None, *, auth: bool = False, enabled: bool = True
) -> AsyncIterator[str]:
    """Run a manager with the page, and with a history if there is a file for it; yields where it is."""
    history = History(enabled=file is not None, file=str(file or "/none/history"))
    async with served(access, auth=auth, history=history, web=Web(enabled=enabled)) as manager:
        yield f"{manager.url}/web/"


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
    access: RestConfig, configuration: Configuration = QUIET, framework: Framework | None = None, **options: Any
) -> AsyncIterator[Probes]:
    """Run a manager, with probes, while the block runs; its caches may not be filled when the block begins."""
    port, stop = free_port(), asyncio.Event()
    health = Health(health_probe_bind_address=f"127.0.0.1:{port}")
    running = Manager(
        Setup(
            access,
            configuration.model_copy(update={"health": health}),
            framework or Framework(load_plugins()),
            **options,
        )
    )
    task = asyncio.create_task(running.run(stop))
    try:
        yield Probes(port, stop, task)
    finally:
        stop.set()
        await task
