"""A world without any object."""

from __future__ import annotations

import pytest
from support.world import World


@pytest.fixture
def world() -> World:
    return World()
