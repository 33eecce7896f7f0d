"""What commands talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trainmaster.devcluster.crds.install import TRAINER_DEFINITIONS, install_definitions
from trainmaster.devcluster.testing.envtest import Environment, start_environment


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Environment]:
    """An API server that knows TrainJobs, and nobody who works on them but the test."""
    (tmp_path / "api").mkdir()
    async with start_environment(tmp_path / "api") as served:
        await install_definitions(served.api, TRAINER_DEFINITIONS)
        yield served
