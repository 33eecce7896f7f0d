"""An API server on which nobody works, with jobs of both APIs: they stay as the test leaves them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.team import Team, quiet_team

from trainmaster.devcluster.cluster import Cluster
from trainmaster.devcluster.crds.install import install_definitions


@pytest.fixture
async def quiet(tmp_path: Path) -> AsyncIterator[tuple[Team, Cluster]]:
    """A namespace of such a server, and that server."""
    async with quiet_team(tmp_path) as (team, cluster):
        await install_definitions(cluster.api, ("kubeflow.org_pytorchjobs.yaml",))
        yield team, cluster
