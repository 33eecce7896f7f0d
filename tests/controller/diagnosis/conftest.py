"""A TrainJob whose pods run."""

import pytest
from support.failing_pods import FailingWorld


@pytest.fixture
async def world() -> FailingWorld:
    return await FailingWorld.running()
