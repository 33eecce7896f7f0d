"""A cluster that is driven step by step, with a namespace to work in."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.controllers.stepping import Stepper


@pytest.fixture
async def cluster() -> Stepper:
    stepper = Stepper()
    await stepper.namespace("default")
    return stepper
