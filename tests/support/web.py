"""What a manager serves beside its metrics, for tests: the web page, the history, the pages for debugging."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from support.stack import QUIET, manager

from trainmaster.controller.configuration import Metrics, MetricsAuth, complete
from trainmaster.controller.configuration.types import History, Web
from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.devcluster.listener import free_port


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
