"""Fixtures for tests of admission webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.devcluster.envtest import Environment
from support.webhooks import HookedServer, serve_webhooks


@pytest.fixture
async def hooked(devcluster_server: Environment, tmp_path: Path) -> AsyncIterator[HookedServer]:
    async with serve_webhooks(tmp_path / "hooks") as hooks:
        yield HookedServer(devcluster_server, hooks)
