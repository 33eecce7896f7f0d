"""API servers: one that enforces RBAC, and one with webhooks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.devcluster.envtest import Environment, start_environment
from support.webhooks import HookedServer, serve_webhooks

from trainmaster.devcluster.apiserver.resources import SERVICE_ACCOUNTS


@pytest.fixture
async def rbac_server(tmp_path: Path) -> AsyncIterator[Environment]:
    """With a service account `me` that has no rights."""
    async with start_environment(tmp_path, rbac=True) as served:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}}
        await served.api.create(SERVICE_ACCOUNTS, account, namespace="default")
        yield served


@pytest.fixture
async def hooked(devcluster_server: Environment, tmp_path: Path) -> AsyncIterator[HookedServer]:
    async with serve_webhooks(tmp_path / "hooks") as hooks:
        yield HookedServer(devcluster_server, hooks)
