"""The web page of a manager for tests: what is served, and to whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.stack import QUIET, manager

from trainmaster.controller.configuration import Configuration, Metrics, MetricsAuth, complete
from trainmaster.controller.configuration.types import History, Web
from trainmaster.controller.kube.rest.config import RestConfig
from trainmaster.devcluster.listener import free_port


@asynccontextmanager
async def web_page(
    access: RestConfig, file: Path | None, *, auth: bool = False, enabled: bool = True
) -> AsyncIterator[str]:
    """Run a manager with the page, and with a history if there is a file for it; yields where it is."""
    port = free_port()
    configuration = Configuration(
        webhook=QUIET.webhook,
        health=QUIET.health,
        metrics=Metrics(bind_address=f"127.0.0.1:{port}", secure_serving=False, auth=MetricsAuth(enabled=auth)),
        history=History(enabled=file is not None, file=str(file or "/none/history")),
        web=Web(enabled=enabled),
    )
    assert not complete(configuration).problems
    async with manager(access, configuration=configuration):
        yield f"http://127.0.0.1:{port}/web/"
