"""Fixtures for tests of admission webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.webhooks import Configurer, WebhookServer, serve_webhooks

from trainmaster.devcluster.testing.envtest import Environment


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    async with serve_webhooks(tmp_path / "hooks") as server:
        yield server


@pytest.fixture
def configure(devcluster_server: Environment, hooks: WebhookServer) -> Configurer:
    return Configurer(devcluster_server, hooks)
