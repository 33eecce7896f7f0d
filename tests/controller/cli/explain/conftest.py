"""A namespace of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.team import Team, quiet_team, team

from trainmaster.devcluster.cluster import Cluster

_numbers = itertools.count(1)


@pytest.fixture
async def mine(cluster_home: Path, tmp_path: Path) -> AsyncIterator[Team]:
    """A namespace of a whole cluster."""
    async with team(cluster_home / ".trainmaster/kubeconfig", f"explained-{next(_numbers)}", tmp_path) as mine:
        yield mine


@pytest.fixture
async def quiet(tmp_path: Path) -> AsyncIterator[tuple[Team, Cluster]]:
    """A namespace of an API server on which nobody works, and that server: jobs stay as the test leaves them."""
    async with quiet_team(tmp_path) as found:
        yield found
