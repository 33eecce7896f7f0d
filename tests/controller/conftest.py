"""What tests of the controller share."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
from support.stack import Stack, api_server
from support.virtualtime import VirtualClock

from trainmaster.controller.certificates import rotator
from trainmaster.controller.kube.cache import backoff, reflector
from trainmaster.controller.kube.rest import retry
from trainmaster.controller.manager import training_operator
from trainmaster.controller.server import server

PAUSES: tuple[tuple[ModuleType, str, float], ...] = (
    (backoff, "_FIRST", 0.05),
    (backoff, "_CAP", 0.2),
    (reflector, "_ABSENT_INTERVAL", 0.1),
    (retry, "_FIRST_PAUSE", 0.01),
    (retry, "_PAUSE_AT_MOST", 0.1),
    (rotator, "_NOT_READ_YET", 0.1),
    (server, "FIRST_LOOK_INTERVAL", 0.05),
    (server, "REFRESH_INTERVAL", 0.05),
    (training_operator, "DISCOVERY_INTERVAL", 0.1),
)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses after which a manager tries or looks again, on which nothing else depends."""
    for module, name, seconds in PAUSES:
        monkeypatch.setattr(module, name, seconds)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    """An API server of our own, with the definitions."""
    async with api_server(tmp_path) as stack:
        yield stack


SLOW = 0.5
"""Seconds of one turn of the loop; a busy machine makes tenths of a second of nothing."""


@pytest.fixture
async def debugged(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """P-34: the loop in debug mode, which checks that loops are called from their own threads, and no complaint of it.

    For tests of what runs on several loops or cancels much; it makes every turn of the loop slower.
    """
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = SLOW
    yield
    complaints = [
        record.getMessage() for record in caplog.records if record.name == "asyncio" and record.levelno >= logging.ERROR
    ]
    assert complaints == []
