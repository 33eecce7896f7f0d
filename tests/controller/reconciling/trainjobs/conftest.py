"""A world without any object."""

import pytest
from support.world import World


@pytest.fixture
def world() -> World:
    return World()
