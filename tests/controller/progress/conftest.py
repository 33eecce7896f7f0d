"""A status server without TLS before a real API server, and trainers that talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from support.progress import Desk, MovableClock, Trainers
from support.stack import Stack, api_server

from trainmaster.controller.server.tls_server import FirstRequests
from trainmaster.controller.statusserver.handler import Reports
from trainmaster.controller.statusserver.server import HTTP_OPTIONS, application


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        yield stack


@pytest.fixture
async def trainers(stack: Stack) -> Trainers:
    trainers = Trainers(stack.client)
    await trainers.prepare()
    return trainers


@pytest.fixture
async def desk(stack: Stack, trainers: Trainers) -> AsyncIterator[Desk]:
    clock = MovableClock()
    app = application(Reports(stack.client, trainers.cache, clock=clock), FirstRequests(clock, within=10.0))
    server = TestServer(app)
    await server.start_server(**HTTP_OPTIONS)
    async with TestClient(server) as http:
        yield Desk(http, trainers, clock)
