"""A status server without TLS before a real API server, and trainers that talk to it."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer
from support.stack import Stack
from support.statusserver import OWNERS, MovableClock, StatusClient, Trainers

from trainmaster.controller.server.server import http_log
from trainmaster.controller.statusserver.handler import StatusHandler
from trainmaster.controller.statusserver.server import HTTP_OPTIONS, application


@pytest.fixture
async def trainers(stack: Stack) -> Trainers:
    trainers = Trainers(stack.client)
    await trainers.prepare()
    return trainers


@pytest.fixture
async def token(trainers: Trainers) -> str:
    """Of a pod of the TrainJob `train`, which it makes."""
    return await trainers.token("train", pod=await trainers.create("train"))


@pytest.fixture
async def http(stack: Stack, trainers: Trainers) -> AsyncIterator[StatusClient]:
    clock = MovableClock()
    server = TestServer(application(StatusHandler(stack.client, trainers.cache, OWNERS, clock=clock)))
    await server.start_server(access_log=None, logger=http_log, **HTTP_OPTIONS)
    async with TestClient(server) as session:
        yield StatusClient(session, trainers, clock)
