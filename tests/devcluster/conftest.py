"""Fixtures for tests that need a server of the embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trainmaster.devcluster.testing.server import ServedApi, serve_api


@pytest.fixture
async def devcluster_server(tmp_path: Path) -> AsyncIterator[ServedApi]:
    """An API server over HTTPS with the built-in kinds and the usual namespaces, without controllers and kubelet."""
    async with serve_api(tmp_path) as served:
        yield served
