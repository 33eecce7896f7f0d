"""An API server that enforces RBAC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.devcluster.envtest import Environment, start_environment

from trainmaster.devcluster.apiserver.resources import SERVICE_ACCOUNTS


@pytest.fixture
async def rbac_server(tmp_path: Path) -> AsyncIterator[Environment]:
    """With a service account `me` that has no rights."""
    async with start_environment(tmp_path, rbac=True) as served:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}}
        await served.api.create(SERVICE_ACCOUNTS, account, namespace="default")
        yield served
