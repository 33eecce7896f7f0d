"""What tests of the controller share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

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
